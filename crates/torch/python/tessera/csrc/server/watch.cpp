#include "server/watch.h"

#include "server/group.h"

namespace tessera {

constexpr double kElement = 4;  // FLOP that take as long as an element of an operator that does little with each

constexpr const char* kSplits[] = {"one", "layers", "batch", "refused"};

Split split_of(const std::string& name) {
  auto found = std::find(std::begin(kSplits), std::end(kSplits), name);
  TORCH_CHECK(found != std::end(kSplits), "there is no split ", name);
  return static_cast<Split>(found - std::begin(kSplits));
}

std::string name_of(Split split) { return kSplits[static_cast<size_t>(split)]; }

void Watch::note(uint64_t id, Placed next) {
  auto& before = book[id];
  for (size_t server = 0; server < used_.size(); server++) {
    used_[server] += part_of(next, server, division_) - part_of(before, server, division_);
    fits_ &= used_[server] <= memory_[server];
    peak_ = std::max(peak_, used_[server]);
  }
  before = std::move(next);
}

void Watch::forget(uint64_t id) {
  auto found = book.find(id);
  if (found == book.end()) return;
  for (size_t server = 0; server < used_.size(); server++) used_[server] -= part_of(found->second, server, division_);
  book.erase(found);
}

void Watch::clear() {
  book.clear();
  std::fill(used_.begin(), used_.end(), 0);
  work = {};
  fits_ = true;
  peak_ = 0;
}

void Watch::divide_anew() {
  book.clear();
  std::fill(used_.begin(), used_.end(), 0);
}

static double elements(const Layout& of) {
  double count = 1;
  for (auto size : of.sizes) count *= size;
  return count;
}

// What an operation takes. Products of matrices are told apart, because they take most of it.
static double cost(const Executor::Template& of, const Signature& seen) {
  double results = 0, arguments = 0;
  for (auto& outcome : of.outcomes) if (outcome.kind == kNew) results += elements(outcome.layout);
  for (auto& slot : seen.slots) arguments += elements(slot);
  auto& name = of.op.schema().name();
  auto inner = [&](int argument, int from_last) -> double {
    for (size_t i = 0; i < seen.slots.size(); i++) {
      auto& sizes = seen.slots[i].sizes;
      if (seen.argument[i] == argument && int(sizes.size()) >= from_last) return sizes[sizes.size() - from_last];
    }
    return 1;
  };
  auto weight = [&](int argument) {
    for (size_t i = 0; i < seen.slots.size(); i++) {
      if (seen.argument[i] == argument && !seen.slots[i].sizes.empty()) return elements(seen.slots[i]) / std::max<double>(seen.slots[i].sizes[0], 1);
    }
    return 1.0;
  };
  if (name == "aten::mm" || name == "aten::bmm") return 2 * results * inner(0, 1);
  if (name == "aten::addmm" || name == "aten::baddbmm") return 2 * results * inner(1, 1);
  if (name == "aten::convolution") return 2 * results * weight(1);
  if (name == "aten::convolution_backward" && !seen.slots.empty()) return 4 * elements(seen.slots[0]) * weight(2);
  return kElement * (results + arguments);
}

// Follows one operation as if it were divided.
void Group::watch(const Executor::Template& of, const Signature& seen, const std::vector<uint64_t>& ids, const std::vector<uint64_t>& names) {
  std::vector<const Placed*> placed;
  for (size_t i = 0; i < ids.size(); i++) {
    auto found = watch_.book.find(ids[i]);
    if (found == watch_.book.end()) {
      auto known = placed_.find(ids[i]);
      if (known == placed_.end()) return;
      Placed nowhere;
      nowhere.bytes = known->second.bytes, nowhere.rows = known->second.rows;
      watch_.note(ids[i], nowhere);
      found = watch_.book.find(ids[i]);
    }
    if (!found->second.rows) found->second.rows = outermost(seen.slots[i]);
    placed.push_back(&found->second);
  }
  Decision decision;
  bool divided = !seen.random && divide_rows({of, seen, placed, division_, servers_.own}, decision);
  double moved = 0;
  for (size_t i = 0; i < ids.size(); i++) {
    auto next = watch_.book[ids[i]];
    bool cut = divided && decision.dims[i] >= 0, stays = cut && next.kind == Placed::kRows && next.units == decision.units;
    if (stays) continue;
    if (next.kind == Placed::kRows || next.kind == Placed::kSum) moved += next.bytes;
    next.kind = Placed::kWhole, next.holders = all();
    if (cut && seen.written[i]) next.kind = Placed::kRows, next.units = decision.units;
    watch_.note(ids[i], next);
  }
  size_t next = 0;
  for (size_t i = 0; i < of.outcomes.size(); i++) {
    if (of.outcomes[i].kind != kNew || next >= names.size()) continue;
    Placed result;
    result.bytes = of.outcomes[i].bytes, result.rows = outermost(of.outcomes[i].layout);
    result.kind = Placed::kWhole, result.holders = all();
    if (divided && decision.results[i] >= 0) result.kind = Placed::kRows, result.units = decision.units;
    if (divided && decision.results[i] == Decision::kSum && !decision.divide) result.kind = Placed::kSum;
    watch_.note(names[next++], result);
  }
  if (divided && decision.divide) moved += 1;
  (divided ? watch_.work.divisible : watch_.work.repeated) += cost(of, seen);
  watch_.work.exchanged_bytes += moved;
  watch_.work.exchanges += moved > 0;
}

// Asks at the first server now and then whether another plan is better, and has all change over together.
void Group::reconsider() {
  if (++watched_ < next_look_) return rebalance();
  weigh();
  // What no operation has touched yet, such as the later layers of a model, is on every server all the same.
  for (auto& [id, placed] : placed_) {
    if (watch_.book.count(id)) continue;
    Placed whole;
    whole.bytes = placed.bytes, whole.rows = placed.rows, whole.kind = Placed::kWhole, whole.holders = all();
    watch_.note(id, whole);
  }
  // While a program still grows, what it will keep and exchange is not known: it is looked at again soon. A little more is what was
  // freed a little later, as that comes when the program gets to it.
  bool grew = watch_.peak() - seen_peak_ > seen_peak_ / 8;
  seen_peak_ = watch_.peak();
  if (servers_.changes && split_ != Split::kBatch && grew) {
    next_look_ += kFirstLook + watched_ / 4;
    watch_.work = {};
    return;
  }
  next_look_ = 2 * watched_;
  auto choice = static_cast<Split>(exchange_.gather(leads() ? int64_t(exchange_.reconsider(watch_.work, watch_.fits())) : 0)[0]);
  watch_.work = {};
  if (choice == Split::kRefused) {
    lost = "these slices together are slower than the fastest of them alone, and that is refused: ask for another split, or for one slice";
    return;
  }
  split_ = choice;
  // What was weighed was of a card that is divided.
  if (split_ != Split::kBatch) next_weights_.clear();
}

// By batch there was too little memory, whatever was predicted: from now on nothing is held twice. Says whether that leaves more.
bool Group::make_room() {
  if (!servers_.changes) return false;
  watch_.give_up();
  next_weights_.clear();
  bool changed = std::exchange(split_, Split::kLayers) == Split::kBatch;
  if (changed && leads()) exchange_.reconsider(watch_.work, false);
  return keep_one_of_each() || changed;
}

// Leaves one of several copies, at the server where it would be if it had come now.
bool Group::keep_one_of_each() {
  std::map<uint64_t, Placed*> several;  // in the same order at each server
  for (auto& [id, placed] : placed_) {
    if (placed.kind == Placed::kWhole && (placed.holders & (placed.holders - 1)) && placed.bytes) several[id] = &placed;
  }
  auto count = [&](const Placed& placed, bool there) {
    for (int server = 0; server < size(); server++) {
      auto bytes = part_of(placed, server);
      used_[server] = there ? used_[server] + bytes : used_[server] - bytes;
    }
  };
  for (auto& [id, placed] : several) count(*placed, false);
  for (auto& [id, placed] : several) {
    int at = home(placed->bytes);
    placed->holders = bit(placed->at(at) ? at : lowest(placed->holders));
    count(*placed, true);
    if (!placed->at(servers_.own)) own_.drop(id);
  }
  return !several.empty();
}

}  // namespace tessera
