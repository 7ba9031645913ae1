// Errors as the program sees them: of PyTorch's own kinds, with the line that issued the operation.
#include <Python.h>
#include <frameobject.h>

#include "program/client.h"

namespace tessera {

constexpr size_t kLines = 1 << 15;  // of the last operations whose lines are known

std::string size_text(uint64_t bytes) {
  char text[32];
  if (bytes >= 1ull << 30) snprintf(text, sizeof text, "%.2f GiB", bytes / double(1ull << 30));
  else if (bytes >= 1 << 20) snprintf(text, sizeof text, "%.2f MiB", bytes / double(1 << 20));
  else snprintf(text, sizeof text, "%.2f KiB", bytes / 1024.);
  return text;
}

// Counts an operation and notes which line issued it: the innermost one outside of PyTorch. The text is made when there is an error.
// What is recorded holds on to the storages that it works on.
void Client::issued(c10::ArrayRef<c10::TensorImpl*> slots) {
  if (!capture_) {
    if (lines_.empty()) lines_.resize(kLines);
    statistics.operations++;
    lines_[statistics.operations % kLines] = line();
    return;
  }
  capture_->lines.push_back(line());
  for (auto* tensor : slots) {
    auto id = name_of(tensor->storage().unsafeGetStorageImpl());
    if (!capture_->made.count(id)) keep(id);
  }
}

Line Client::line() {
  Line line{statistics.operations};
  // PyTorch lets go of Python's lock before it dispatches; threads of its own have no Python to look at.
  if (PyGILState_GetThisThreadState()) {
    auto state = PyGILState_Ensure();
    line.code = innermost(&line.instruction);
    PyGILState_Release(state);
  }
  // Most lines that ask for a backward pass issue its first gradient themselves.
  if (line.code) return last_ = line;
  return {line.operation, last_.code, last_.instruction, true};
}

// The code of the innermost frame outside of PyTorch, and where it is in it.
void* Client::innermost(int* instruction) {
  PyFrameObject* frame = PyEval_GetFrame();
  Py_XINCREF(frame);
  for (int depth = 0; frame && depth < 32; depth++) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    auto found = of_library_.find(code);
    if (found == of_library_.end()) {
      // Code that was looked at once is kept, so that its address means the same for ever.
      auto* file = PyUnicode_AsUTF8(code->co_filename);
      bool library = file && std::any_of(libraries_.begin(), libraries_.end(), [&](auto& of) { return std::string_view(file).starts_with(of); });
      found = of_library_.emplace(Py_NewRef(code), library).first;
    }
    Py_DECREF(code);
    if (!found->second) {
#if PY_VERSION_HEX >= 0x030B0000
      *instruction = PyFrame_GetLasti(frame);
#else
      *instruction = 2 * frame->f_lasti;
#endif
      Py_DECREF(frame);
      return code;
    }
    PyFrameObject* back = PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = back;
  }
  Py_XDECREF(frame);
  return nullptr;
}

std::string Client::where(const Line& line, const char* what) const {
  if (!line.code) return c10::str(what, " by a thread of PyTorch");
  auto* by = line.aside ? " by a thread of PyTorch, such as a backward pass, after " : " at ";
  auto state = PyGILState_Ensure();
  auto* code = static_cast<PyCodeObject*>(line.code);
  auto text = c10::str(what, by, PyUnicode_AsUTF8(code->co_filename), ":", PyCode_Addr2Line(code, line.instruction), " in ",
                       PyUnicode_AsUTF8(code->co_name));
  PyGILState_Release(state);
  return text;
}

std::string Client::where(const Failure& failure) const {
  std::string recorded;
  if (failure.graph) {
    auto found = recordings_.find(failure.graph);
    bool known = found != recordings_.end() && failure.step < found->second->lines.size();
    recorded = known ? where(found->second->lines[failure.step], "recorded") : "in a graph that is gone";
    recorded += ", ";
  }
  if (failure.operation <= operations_base_) return {};
  auto operation = failure.operation - operations_base_;
  auto& line = lines_[operation % kLines];
  if (line.operation != operation) return c10::str(" (", recorded, "issued too long ago to tell where)");
  return c10::str(" (", recorded, where(line, failure.graph ? "replayed" : "issued"), ")");
}

void Client::raise(const Failure& failure) {
  auto text = c10::str(failure.text, "\n", failure.name, " on the virtual card", where(failure));
  c10::SourceLocation here{__func__, __FILE__, __LINE__};
  switch (failure.status) {
    case kMemory:
      throw c10::OutOfMemoryError(here, c10::str("Tessera out of memory. Virtual card 0 has a total capacity of ", size_text(limit_),
                                                 " of which ", size_text(limit_ > used_ ? limit_ - used_ : 0), " is free: ", text));
    case kNotImplemented: throw c10::NotImplementedError(here, text);
    case kIndex: throw c10::IndexError(here, text);
    case kValue: throw c10::ValueError(here, text);
    case kType: throw c10::TypeError(here, text);
    default: throw c10::Error(here, text);
  }
}

}  // namespace tessera
