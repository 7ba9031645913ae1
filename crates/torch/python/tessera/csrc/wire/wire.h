// The stream of operations: commands in frames, and how their parts are written.
//
// A program defines a *template* once for each operator with these shapes, types and plain arguments; from then on an operation is
// the template's number, the storages it works on, the numbers that change from call to call, and names for new storages. Views
// exist at the program only. Everything that is read here may come from a hostile program: each read is checked.
#pragma once
#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>

#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

enum Command : uint8_t {
  kDefine = 1,
  kExecute = 2,
  kExecuteNow = 3,
  kFree = 4,
  kAllocate = 5,
  kWrite = 6,
  kRead = 7,
  kSynchronize = 8,
  kResize = 9,
  kSeed = 10,
  kGetRandom = 11,
  kSetRandom = 12,
  kDrop = 13,
  kStatus = 14,
  kSnapshot = 15,
  kRecord = 16,
  kReplay = 17,
  kForget = 18,
  kBegin = 19,      // another program begins: nothing of those before it is left
  kUncounted = 20,  // begins a frame that tells again what was told, and does not count
  kRepeat = 21,     // the last answer did not arrive
  kWatch = 24,      // each operation is announced before it is executed, from now on or (answered) no longer
  kCall = 26,       // a replay with other storages in place of some, and other names for some that it leaves behind
  kCondemn = 25,    // this operation is not executed: it is an error
  // Alone in a frame from the first server of a card to the others, never from a program:
  kGone = 22,  // the program's connection has ended
  kOver = 23,  // the first server ends, and nothing is wrong
  // The same, for snapshots (server/snapshots.cpp); all that come here are later than these.
  kQuiesce = 27,   // what the card holds is read next, a piece at a time
  kFetch = 28,     // a piece of a storage goes to the first server
  kHold = 29,      // a storage of a snapshot, and where it is from now on
  kStore = 30,     // a piece of it comes from the first server
  kRestored = 31,  // all of it is there, and where the stream stood
  kAnswer = 32,    // the program's question, which the first server has seen to alone, is answered now
};

// How a reply begins; everything but kFine is followed by the operation's number, its graph and its
// place in it when it was a replay (or 0 and 0), its operator and what it said.
enum Status : uint8_t { kFine = 0, kRuntime = 1, kMemory = 2, kNotImplemented = 3, kIndex = 4, kValue = 5, kType = 6 };
// In place of that: no reply, but the number of the operation that is executed next.
constexpr uint8_t kAnnounced = 7;

// Kinds of a result: nothing, a storage of its own, a view of an argument, a view of an earlier result.
enum Result : uint8_t { kUndefined = 0, kNew = 1, kOfArgument = 2, kOfResult = 3 };

constexpr size_t kMostDimensions = 64;
constexpr size_t kMostElements = 1 << 16;  // of a list
constexpr size_t kMostTemplates = 1 << 16;
constexpr size_t kMostGraphs = 1 << 10;
constexpr size_t kLongestStep = 15 << 20;    // bytes of commands; less than a frame
constexpr size_t kMostGraphBytes = 64 << 20;  // of all graphs of a program
constexpr size_t kMostStorages = 1 << 22;
constexpr size_t kMostCondemned = 1 << 10;
constexpr size_t kInline = 16 << 10;  // larger tensors travel as bulk data
constexpr size_t kScalar = 16;        // bytes of a number that travels inside an operation

using Bytes = std::string;

template <class T>
inline void put(Bytes& to, T value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

inline void put_text(Bytes& to, std::string_view text) {
  put<uint32_t>(to, text.size());
  to.append(text);
}

inline void put_numbers(Bytes& to, c10::ArrayRef<int64_t> numbers) {
  to.append(reinterpret_cast<const char*>(numbers.data()), 8 * numbers.size());
}

class Reader {
 public:
  Reader(const char* from, size_t length) : at_(from), end_(from + length) {}
  explicit Reader(const Bytes& bytes) : Reader(bytes.data(), bytes.size()) {}

  template <class T>
  T get() {
    T value;
    std::memcpy(&value, take(sizeof(T)), sizeof(T));
    return value;
  }
  const char* take(size_t length) {
    TORCH_CHECK(length <= left(), "a command is cut short");
    auto* from = at_;
    at_ += length;
    return from;
  }
  std::string text() {
    auto length = get<uint32_t>();
    return std::string(take(length), length);
  }
  size_t count() {
    auto count = get<uint32_t>();
    TORCH_CHECK(count <= kMostElements, "a list of ", count, " elements");
    return count;
  }
  void numbers(std::vector<int64_t>& to, size_t count) {
    to.resize(count);
    std::memcpy(to.data(), take(8 * count), 8 * count);
  }
  const char* rest() const { return at_; }
  size_t left() const { return end_ - at_; }
  bool done() const { return at_ == end_; }

 private:
  const char* at_;
  const char* end_;
};

// A tensor as it lies in its storage.
struct Layout {
  c10::ScalarType type = c10::ScalarType::Undefined;
  uint8_t flags = 0;
  std::vector<int64_t> sizes, strides;
  int64_t offset = 0;
  bool operator==(const Layout&) const = default;
};

enum Flag : uint8_t { kWrappedNumber = 1, kConjugate = 2, kNegative = 4 };

inline c10::ScalarType scalar_type(uint8_t code) {
  TORCH_CHECK(code < static_cast<uint8_t>(c10::ScalarType::NumOptions), "there is no type ", int(code));
  auto type = static_cast<c10::ScalarType>(code);
  TORCH_CHECK(type != c10::ScalarType::Undefined && !c10::isQIntType(type), "type ", c10::toString(type), " is not supported");
  return type;
}

inline void read_layout(Reader& from, Layout& to) {
  to.type = scalar_type(from.get<uint8_t>());
  to.flags = from.get<uint8_t>();
  size_t dimensions = from.get<uint8_t>();
  TORCH_CHECK(dimensions <= kMostDimensions, "a tensor of ", dimensions, " dimensions");
  from.numbers(to.sizes, dimensions);
  from.numbers(to.strides, dimensions);
  to.offset = from.get<int64_t>();
}

inline Layout read_layout(Reader& from) {
  Layout layout;
  read_layout(from, layout);
  return layout;
}

// Bytes of the elements of a tensor.
inline uint64_t extent(const Layout& of) {
  uint64_t bytes = c10::elementSize(of.type);
  for (auto size : of.sizes) TORCH_CHECK(size >= 0 && !__builtin_mul_overflow(bytes, uint64_t(size), &bytes), "a tensor that is too large");
  return bytes;
}

// Bytes that a tensor reaches in its storage; throws where that cannot be counted.
inline size_t reach(const Layout& of) {
  TORCH_CHECK(of.offset >= 0, "a negative offset");
  __int128 last = of.offset;
  bool empty = false;
  for (size_t i = 0; i < of.sizes.size(); i++) {
    TORCH_CHECK(of.sizes[i] >= 0 && of.strides[i] >= 0, "a negative size or stride");
    empty |= of.sizes[i] == 0;
    last += static_cast<__int128>(of.sizes[i] ? of.sizes[i] - 1 : 0) * of.strides[i];
    TORCH_CHECK(last < std::numeric_limits<int64_t>::max() / 64, "a tensor that is too large");
  }
  return empty ? 0 : (static_cast<size_t>(last) + 1) * c10::elementSize(of.type);
}

}  // namespace tessera
