// What a program's work would be if it were divided by rows, found out from the stream while it runs in whatever way.
//
// A second book is kept as if every operation had been divided where a rule allows it. What it sums up (work that rows divide, work that each
// server would do as a whole, bytes and exchanges between the servers, and memory) is what a plan is chosen by: plan.py.
#pragma once
#include "server/placing.h"

namespace tessera {

struct Work {
  double divisible = 0, repeated = 0;  // FLOP, or as long as they take
  double exchanged_bytes = 0, exchanges = 0;
};

class Watch {
 public:
  Watch(std::vector<uint64_t> memory, const Division& division) : memory_(std::move(memory)), used_(memory_.size()), division_(division) {}

  std::unordered_map<uint64_t, Placed> book;
  Work work;

  void note(uint64_t id, Placed next);
  void forget(uint64_t id);
  void clear();
  // Rows are divided otherwise from now on: what is known of where storages would be is begun anew.
  void divide_anew();
  bool fits() const { return fits_; }  // each server's part in its memory, all along
  void give_up() { fits_ = false; }
  uint64_t peak() const { return peak_; }

 private:
  std::vector<uint64_t> memory_, used_;
  const Division& division_;
  bool fits_ = true;
  uint64_t peak_ = 0;  // of the fullest server
};

inline uint64_t part_of(const Placed& placed, int server, const Division& division) {
  if (!placed.at(server)) return 0;
  return placed.kind == Placed::kRows ? placed.bytes / placed.units * division.part(placed.units, server) : placed.bytes;
}

}  // namespace tessera
