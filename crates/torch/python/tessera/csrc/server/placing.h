// Where storages are in a group of slice servers, and how the rows of one are divided.
//
// A storage that is divided by rows lies in pieces of consecutive bytes, one at each server: its *units*, mostly the samples of a batch,
// are divided in proportion to what the servers compute per second. Every server keeps the same book of all storages, from the stream
// alone, and so knows without asking who has what, and whose memory is full.
#pragma once
#include <algorithm>
#include <cmath>
#include <map>
#include <unordered_map>

#include "wire/codec.h"

namespace tessera {

struct Placed {
  enum Kind : uint8_t {
    kNowhere,  // nobody has written it yet
    kWhole,    // at each of the holders
    kRows,     // divided by units
    kSum,      // each server has a part of a sum
  };
  uint64_t bytes = 0;
  Kind kind = kNowhere;
  uint64_t holders = 0;
  int64_t units = 0;
  c10::ScalarType type = c10::ScalarType::Undefined;  // of a sum
  int64_t rows = 0;                                   // its outermost dimension, as the program first used it
  uint64_t made = 0;                                  // the operation that it is a result of
  uint64_t first = 0, written = 0;                    // operations that wrote it: the first since the last answer, and the last
  bool lost = false;                                  // an operation before it failed at another server

  bool at(int server) const { return kind == kWhole ? holders >> server & 1 : kind != kNowhere; }
};

inline uint64_t bit(int server) { return uint64_t(1) << server; }
inline int lowest(uint64_t holders) { return __builtin_ctzll(holders); }

// The dimension that goes over the units of a storage, if this view of it has one that reaches over all of them, and whose rest
// stays within each.
inline int row_dimension(const Layout& of, int64_t units, uint64_t bytes) {
  int64_t size = c10::elementSize(of.type);
  if (units < 2 || bytes == 0 || bytes % units || bytes / units % size) return -1;
  int64_t unit = bytes / units / size;
  int outermost = -1;
  for (size_t i = 0; i < of.sizes.size(); i++) {
    if (of.sizes[i] == 0) return -1;
    if (of.sizes[i] > 1 && (outermost < 0 || of.strides[i] > of.strides[outermost])) outermost = i;
  }
  if (outermost < 0) return -1;
  int64_t stride = of.strides[outermost], rest = of.offset;
  if (stride < 1 || unit % stride || of.sizes[outermost] * stride != unit * units) return -1;
  for (size_t i = 0; i < of.sizes.size(); i++) if (int(i) != outermost) rest += (of.sizes[i] - 1) * of.strides[i];
  return rest < stride ? outermost : -1;
}

// Divides units among servers by their weights, which are what they compute per second until more is known, so that the slowest is done as early
// as possible. Each has at least one.
class Division {
 public:
  explicit Division(std::vector<double> weights) : weights_(std::move(weights)) {
    double sum = 0;
    for (auto weight : weights_) sum += weight;
    for (auto& weight : weights_) weight /= sum;
  }
  int servers() const { return weights_.size(); }
  // The part of each server; together 1.
  const std::vector<double>& weights() const { return weights_; }
  // Where the part of each server begins, and the end.
  const std::vector<int64_t>& of(int64_t units) const {
    auto [found, is_new] = known_.try_emplace(units);
    if (is_new) found->second = divide(units);
    return found->second;
  }
  int64_t part(int64_t units, int server) const {
    auto& begins = of(units);
    return begins[server + 1] - begins[server];
  }

 private:
  std::vector<double> weights_;
  mutable std::map<int64_t, std::vector<int64_t>> known_;

  std::vector<int64_t> divide(int64_t units) const {
    std::vector<int64_t> parts;
    int64_t left = units;
    for (auto weight : weights_) {
      parts.push_back(std::max<int64_t>(1, std::floor(units * weight)));
      left -= parts.back();
    }
    auto time = [&](size_t i, int64_t more) { return (parts[i] + more) / weights_[i]; };
    for (; left > 0; left--) {
      size_t best = 0;
      for (size_t i = 1; i < parts.size(); i++) if (time(i, 1) < time(best, 1)) best = i;
      parts[best]++;
    }
    for (; left < 0; left++) {
      size_t worst = std::max_element(parts.begin(), parts.end()) - parts.begin();
      for (size_t i = 0; i < parts.size(); i++) if (parts[i] > 1 && time(i, 0) > time(worst, 0)) worst = i;
      parts[worst]--;
    }
    std::vector<int64_t> begins{0};
    for (auto part : parts) begins.push_back(begins.back() + part);
    return begins;
  }
};

// The same view of a server's part of a storage: a piece in place of the whole, or a piece within it.
inline Layout of_part(Layout layout, int dimension, int64_t units, int64_t part) {
  layout.sizes[dimension] = layout.sizes[dimension] / units * part;
  return layout;
}
inline Layout within_whole(Layout layout, int dimension, int64_t units, int64_t begin, int64_t part) {
  auto each = layout.sizes[dimension] / units;
  layout.offset += begin * each * layout.strides[dimension];
  layout.sizes[dimension] = part * each;
  return layout;
}

}  // namespace tessera
