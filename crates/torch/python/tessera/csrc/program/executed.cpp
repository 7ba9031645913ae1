#include "program/executed.h"

namespace tessera {

static Executed::Result read_result(Reader& from) {
  Executed::Result result{static_cast<Result>(from.get<uint8_t>())};
  if (result.kind == kUndefined) return result;
  result.layout = read_layout(from);
  if (result.kind == kOfArgument) result.of = from.get<uint32_t>();
  else result.of = from.get<uint64_t>(), result.bytes = from.get<uint64_t>();
  return result;
}

static Executed::Returned read_returned(Reader& from) {
  Executed::Returned returned{from.get<char>(), {}, {}};
  switch (returned.tag) {
    case 'T': returned.tensors.push_back(read_result(from)); break;
    case 'M': for (auto left = from.get<uint32_t>(); left > 0; left--) returned.tensors.push_back(read_result(from)); break;
    case 'i': returned.number = from.get<int64_t>(); break;
    case 'b': returned.number = from.get<uint8_t>() != 0; break;
    case 'd': returned.number = from.get<double>(); break;
    default: { auto real = from.get<double>(); returned.number = c10::complex<double>(real, from.get<double>()); }
  }
  return returned;
}

Executed read_executed(Reader& from) {
  Executed executed;
  for (auto left = from.get<uint32_t>(); left > 0; left--) {
    auto slot = from.get<uint32_t>();
    auto layout = read_layout(from);
    executed.changed.push_back({slot, std::move(layout), from.get<uint64_t>()});
  }
  for (auto left = from.get<uint32_t>(); left > 0; left--) executed.returned.push_back(read_returned(from));
  return executed;
}

}  // namespace tessera
