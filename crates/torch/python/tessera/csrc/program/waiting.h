// Waiting without holding up the rest of the program.
#pragma once
#include <Python.h>

namespace tessera {

// Python's lock is let go while something is waited for.
class WithoutPython {
 public:
  WithoutPython() : state_(Py_IsInitialized() && PyGILState_Check() ? PyEval_SaveThread() : nullptr) {}
  ~WithoutPython() {
    if (state_) PyEval_RestoreThread(state_);
  }

 private:
  PyThreadState* state_;
};

// Whether this thread is the one that sends what has waited too long: it has no line of the program to wait at.
inline thread_local bool background = false;

}  // namespace tessera
