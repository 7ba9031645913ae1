// What a group tells its program: values, and which operation was the first that failed.
#include "server/group.h"

#include <ATen/ops/empty.h>

namespace tessera {

// Whether the first server has it, so that nobody else has to be asked.
bool Group::is_at_hand(uint64_t id) {
  auto& placed = book(id);
  return placed.kind == Placed::kWhole && placed.at(0);
}

// For the first server, what a view shows.
Tensor Group::read(uint64_t id, const Layout& layout) {
  TORCH_CHECK(reach(layout) <= book(id).bytes, "a tensor is outside its storage");
  with_room([&] {
    if (auto kind = book(id).kind; kind == Placed::kNowhere) at_one(id, 0, false);
    else if (kind != Placed::kWhole) everywhere({id});
  });
  auto& placed = book(id);
  if (placed.at(0)) return leads() ? own_.tensor(id, layout).contiguous().cpu() : Tensor();
  int from = lowest(placed.holders);
  if (servers_.own != 0 && servers_.own != from) return {};
  Tensor seen = by_itself(servers_.own, [&] {
    if (servers_.own == from) return own_.tensor(id, layout).contiguous();
    return at::empty(layout.sizes, at::TensorOptions(layout.type).device(own_.device()));
  });
  if (seen.numel()) exchange_.pass(seen, from, 0);
  counted.exchanges++, counted.moved_bytes += seen.nbytes();
  return by_itself(servers_.own, [&] { return seen.cpu(); });
}

// What one device would not have: the results of operations since one of them failed, and what was written by some servers only.
void Group::lose_since(int64_t first, int64_t last, int server) {
  for (auto& [id, placed] : placed_) {
    bool differs = first < last && int64_t(placed.written) >= first && int64_t(placed.first) < last;
    placed.lost |= int64_t(placed.made) >= first || differs;
  }
  // Who failed has drawn no random numbers since, as one device would not have.
  if (first < last) random_ = random_ & bit(server) ? bit(server) : bit(lowest(random_));
}

// Finds out whether an operation failed at one server. All know it then, and what others have done since is of no use: there, one device
// would have done nothing.
bool Group::settle() {
  watch_.work.exchanges++;
  answered_ = own_.operations;
  bool all_failed = std::exchange(failed, false);
  if (!std::exchange(elsewhere_, false)) return all_failed || own_.failure_.has_value();
  constexpr int64_t never = std::numeric_limits<int64_t>::max();
  // Within a replay: the operation of its first step is told, and which step it was.
  auto failed_at = exchange_.gather(own_.failure_ ? int64_t(own_.failure_->operation + own_.failure_->step) : never);
  auto [earliest, latest] = std::minmax_element(failed_at.begin(), failed_at.end());
  int first = earliest - failed_at.begin();
  if (*earliest == never) return false;
  // What all found at once, all have skipped what followed.
  if (!all_failed || *earliest != *latest) lose_since(*earliest, *latest, first);
  if (first != 0) {
    Bytes told = servers_.own == first ? own_.failure_text() : Bytes();
    told.resize(exchange_.gather(told.size())[first]);
    Tensor text = at::empty({int64_t(told.size())}, at::kByte);
    std::memcpy(text.mutable_data_ptr(), told.data(), told.size());
    exchange_.spread({{text, first}});
    own_.set_failure_text({static_cast<const char*>(text.const_data_ptr()), size_t(text.numel())});
  }
  return true;
}

}  // namespace tessera
