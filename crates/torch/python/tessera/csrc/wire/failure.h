// What failed, as the program is told it and as it is kept until then.
#pragma once
#include <string>

#include "wire/wire.h"

namespace tessera {

struct Failure {
  Status status;
  uint64_t operation;
  std::string name, text;
  uint32_t graph = 0, step = 0;  // where in which replay
};

// Names of failures that are of no operator.
constexpr std::string_view kReading = "read", kSaving = "snapshot", kWaiting = "operation";

// Whether it is of an operator, which is told by its name with the name of its library.
inline bool is_of_operator(const Failure& failure) { return failure.name.find("::") != std::string::npos; }

// Whether the card is another one than it would be without it: not when the program only wanted to know something, or to have it kept.
inline bool leaves_another_card(const Failure& failure) {
  return failure.name != kReading && failure.name != kSaving && failure.name != kWaiting;
}

// All of it but the status.
inline void put_failure(Bytes& to, const Failure& failure) {
  put(to, failure.operation);
  put(to, failure.graph);
  put(to, failure.step);
  put_text(to, failure.name);
  put_text(to, failure.text);
}

inline Failure read_failure(Status status, Reader& from) {
  Failure failure{status, from.get<uint64_t>()};
  failure.graph = from.get<uint32_t>();
  failure.step = from.get<uint32_t>();
  failure.name = from.text();
  failure.text = from.text();
  return failure;
}

// As `Executor::failure_text` writes it.
inline Failure read_failure(Reader& from) {
  auto status = static_cast<Status>(from.get<uint8_t>());
  return read_failure(status, from);
}

}  // namespace tessera
