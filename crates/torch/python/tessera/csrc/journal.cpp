#include "journal.h"

namespace tessera {

constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();
constexpr size_t kFullFrame = 1 << 20;  // bytes of templates that are told in one frame

void Journal::sent(uint64_t number, const Bytes& commands) {
  bytes_ += commands.size();
  frames_.push_back({number, commands, {}});
}

void Journal::bulk(const void* from, size_t bytes) {
  bytes_ += bytes;
  frames_.back().bulk.assign(static_cast<const char*>(from), bytes);
}

void Journal::answered() {
  frames_.back().answered = true;
  executed_ = frames_.back().number;
}

void Journal::answered_bulk(uint64_t bytes) { frames_.back().answered_bulk = bytes; }

void Journal::begins(uint64_t key, uint64_t number, Bytes command, bool asks) {
  ends(key, number);
  standing_.push_back({key, number, kNever, std::move(command), asks});
  lasting_[key] = &standing_.back();
}

void Journal::ends(uint64_t key, uint64_t number) {
  auto found = lasting_.find(key);
  if (found == lasting_.end()) return;
  found->second->to = number;
  lasting_.erase(found);
}

void Journal::forget_up_to(uint64_t number) {
  // The newest frame stays: its answer may be under way.
  while (frames_.size() > 1 && frames_.front().number <= number) {
    before_ = frames_.front().number;
    bytes_ -= frames_.front().commands.size() + frames_.front().bulk.size();
    frames_.pop_front();
  }
  std::deque<Standing> left;
  for (auto& standing : standing_) {
    if (standing.to <= before_) continue;
    left.push_back(std::move(standing));
    if (left.back().to == kNever) lasting_[left.back().key] = &left.back();
  }
  // Places in a deque that is moved stay where they are.
  standing_ = std::move(left);
}

static bool say(const Transport& to, const Bytes& frame) {
  return to.send(to.state, reinterpret_cast<const uint8_t*>(frame.data()), frame.size()) == kDone;
}

static bool pass_over_answer(const Transport& to, uint64_t bulk) {
  const uint8_t* bytes;
  size_t length;
  if (to.receive(to.state, &bytes, &length) != kDone) return false;
  Bytes none(bulk, '\0');
  return bulk == 0 || to.bulk_receive(to.state, reinterpret_cast<uint8_t*>(none.data()), bulk) == kDone;
}

bool Journal::tell_standing(uint64_t sequence, const Transport& to) {
  Bytes frame(1, static_cast<char>(kUncounted));
  auto flush = [&](bool asks) {
    if (frame.size() > 1 && !say(to, frame)) return false;
    frame.resize(1);
    return !asks || pass_over_answer(to, 0);
  };
  for (auto& standing : standing_) {
    if (standing.from > sequence || standing.to <= sequence) continue;
    if (standing.asks && !flush(false)) return false;
    frame += standing.command;
    if ((standing.asks || frame.size() > kFullFrame) && !flush(standing.asks)) return false;
  }
  return flush(false);
}

bool Journal::ask_again(const Transport& to, bool heard) {
  return say(to, {static_cast<char>(kUncounted), static_cast<char>(kRepeat)}) && (!heard || pass_over_answer(to, 0));
}

bool Journal::tell(uint64_t sequence, const Transport& to) {
  if (!tell_standing(sequence, to)) return false;
  for (auto& frame : frames_) {
    if (frame.number <= sequence) continue;
    if (!say(to, frame.commands)) return false;
    auto* bulk = reinterpret_cast<const uint8_t*>(frame.bulk.data());
    if (!frame.bulk.empty() && to.bulk_send(to.state, bulk, frame.bulk.size()) != kDone) return false;
    if (frame.answered && !pass_over_answer(to, frame.answered_bulk)) return false;
  }
  return true;
}

}  // namespace tessera
