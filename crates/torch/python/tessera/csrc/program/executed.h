// The answer to an operation that was executed at once, because what it gives could not be known before: what became of its arguments, and
// what it gave. The server writes it in `Executor::describe_results`.
#pragma once
#include <ATen/core/ivalue.h>

#include "wire/wire.h"

namespace tessera {

struct Executed {
  // An argument that has another shape now.
  struct Changed {
    uint32_t slot;
    Layout layout;
    uint64_t bytes;  // of its storage
    bool operator==(const Changed&) const = default;
  };
  struct Result {
    tessera::Result kind = kUndefined;  // of an argument, or of a storage of its own
    Layout layout;
    uint64_t of = 0;     // the slot of that argument, or the name of that storage
    uint64_t bytes = 0;  // of that storage
    bool operator==(const Result&) const = default;
  };
  struct Returned {
    char tag;                     // 'T' a tensor, 'M' a list of them, or that of a number
    std::vector<Result> tensors;
    c10::IValue number;
    // Whether the program holds the same: numbers that another server computes may differ in their last digits.
    bool operator==(const Returned& other) const { return tag == other.tag && tensors == other.tensors; }
  };
  std::vector<Changed> changed;
  std::vector<Returned> returned;
  bool operator==(const Executed&) const = default;
};

Executed read_executed(Reader& from);

}  // namespace tessera
