// What the dispatcher knows of operators, and of calls of them that it has seen.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/SmallVector.h>

#include "program/client.h"

namespace tessera {

struct Slots {
  c10::SmallVector<c10::TensorImpl*, 16> tensors;
  std::vector<Tensor> uploaded;
  Bytes changing;
};

struct Expected {
  Result kind;
  uint32_t of = 0;
  Layout layout;
  uint64_t bytes = 0;
};

struct Returned {
  enum { kTensor, kList, kArgument } kind;
  uint32_t first, count;
};

struct Resized {
  size_t slot;
  Layout layout;
};

struct Entry {
  uint32_t id = 0, generation = 0;
  bool send = true, immediate = false;
  uint64_t used_at = 0, bytes = 0;
  uint32_t fresh = 0;
  std::vector<Expected> results;
  std::vector<Returned> returns;
  std::vector<Resized> resized;
};

struct Hash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
};

struct Operator {
  c10::OperatorHandle handle;
  bool plain;          // numbers decide shapes: they belong to the key
  bool mixes;          // takes indices on the processor
  bool always_now;     // results that inference cannot know
  bool learns;         // what it gives depends on the device: the first call with a key tells
  std::vector<c10::TypeKind> kinds;
  std::vector<int> written;  // for each return, the argument that it is
  int generator = -1;        // the argument that says who draws
  std::unordered_map<Bytes, std::unique_ptr<Entry>, Hash, std::equal_to<>> cache;
};

// Appends an argument to the key, and what it stands for to the slots.
void encode(Bytes& key, Slots& slots, const IValue& value, bool scalar, const Operator& op);

// Works out what the call gives back. Throws what the meta kernel throws.
void infer(Operator& op, Entry& entry, const Bytes& key, Slots& slots);

}  // namespace tessera
