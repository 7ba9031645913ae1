// What Rust gives to C++: src/table.rs says the same in Rust.
#pragma once
#include <cstddef>
#include <cstdint>

namespace tessera {

enum Outcome : int { kDone = 0, kEnded = 1, kFailed = 2, kInterrupted = 3 };

struct Transport {
  void* state;
  int (*send)(void*, const uint8_t*, size_t);
  int (*receive)(void*, const uint8_t**, size_t*);
  int (*bulk_send)(void*, const uint8_t*, size_t);
  int (*bulk_receive)(void*, uint8_t*, size_t);
  uint64_t (*waiting)(void*);  // bytes that came and were not received yet
  const char* (*error)(void*);
};

struct Gate {
  void* state;
  void (*enter)(void*);
  void (*pay)(void*, uint64_t nanoseconds, bool rests);
};

}  // namespace tessera
