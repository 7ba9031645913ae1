// What a rule is asked: which arguments of an operator are divided already, and how the rest may be.
#pragma once
#include "server/group.h"

namespace tessera {

constexpr int kWhole = Decision::kWhole, kSum = Decision::kSum;

class Question {
 public:
  Question(const Asked& asked, Decision& decision) : asked(asked), decision(decision) {
    decision.how = Decision::kRows;
    decision.dims.assign(asked.seen.slots.size(), kWhole);
    decision.results.assign(asked.of.outcomes.size(), kWhole);
  }
  const Asked& asked;
  Decision& decision;
  int anchor = -1, dim = -1;  // the slot that decides how rows are divided

  size_t slots() const { return asked.seen.slots.size(); }
  const Layout& layout(int slot) const { return asked.seen.slots.at(slot); }
  void cut(int slot, int by) { decision.dims.at(slot) = by; }
  int from_last() const { return dim - dimensions(anchor); }
  int dimensions(int slot) const { return layout(slot).sizes.size(); }
  const IValue& plain(int argument) const { return asked.seen.plain[argument]; }
  // The slot of an argument that is one tensor; -1 where it is none.
  int slot(int argument) const {
    for (size_t i = 0; i < slots(); i++) if (asked.seen.argument[i] == argument) return i;
    return -1;
  }
  // The dimension by which a slot is divided already.
  int divided(int slot) const {
    auto& placed = *asked.placed[slot];
    return placed.kind == Placed::kRows ? row_dimension(layout(slot), placed.units, placed.bytes) : -1;
  }
  // Finds the largest slot that is divided already, of these arguments or of all.
  bool found(const std::vector<int>& among = {}) {
    uint64_t most = 0;
    for (size_t i = 0; i < slots(); i++) {
      if (!among.empty() && !std::count(among.begin(), among.end(), asked.seen.argument[i])) continue;
      int by = divided(i);
      if (by < 0 || asked.placed[i]->bytes <= most) continue;
      most = asked.placed[i]->bytes, anchor = i, dim = by, decision.units = asked.placed[i]->units;
    }
    return anchor >= 0;
  }
  // Begins to divide a slot that is whole.
  bool begin(int slot, int by) {
    if (slot < 0 || by >= dimensions(slot)) return false;
    auto size = layout(slot).sizes[by];
    auto& placed = *asked.placed[slot];
    int64_t rows = placed.rows;
    bool natural = rows > 1 && size % rows == 0 && row_dimension(layout(slot), rows, placed.bytes) == by;
    decision.units = natural ? rows : size;
    if (decision.units < asked.division.servers()) return false;
    anchor = slot, dim = by;
    return true;
  }
  int64_t size() const { return layout(anchor).sizes[dim]; }
  // Divides a slot by this dimension if it has it in full; an argument of size 1 there is the same for all rows.
  bool take(int slot, int by) {
    if (slot < 0 || by < 0 || dimensions(slot) == 0) return true;
    auto have = layout(slot).sizes[by];
    if (have == 1 && size() != 1) return true;
    if (have != size()) return false;
    decision.dims[slot] = by;
    return true;
  }
  void result(size_t at, int what) {
    if (at < decision.results.size()) decision.results[at] = what;
  }
  double fraction() const {
    return double(asked.division.part(decision.units, asked.own)) / decision.units;
  }
};

}  // namespace tessera
