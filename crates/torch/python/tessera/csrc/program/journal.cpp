#include "program/journal.h"
#include "program/executed.h"

#include <algorithm>
#include <utility>

namespace tessera {

constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();
constexpr size_t kFullFrame = 1 << 20;  // bytes of templates that are told in one frame
constexpr int kMostEnded = 2;           // servers by an operation until it is condemned, beside the one that first had it
constexpr size_t kMostTold = kMostCondemned / 2;  // operations that are condemned because the program was told that they failed
constexpr size_t kAnswerHead = 9;       // bytes of an answer before its body: how it ends, and a frame's number

void Journal::sent(uint64_t number, const Bytes& commands) {
  bytes_ += commands.size();
  frames_.push_back({number, commands, {}});
}

void Journal::bulk(const void* from, size_t bytes) {
  bytes_ += bytes;
  frames_.back().bulk.assign(static_cast<const char*>(from), bytes);
}

void Journal::asks(uint64_t bulk) {
  frames_.back().asks = true;
  frames_.back().asked_bulk = bulk;
}

static std::optional<Failure> failure_in(Reader answer) {
  auto status = static_cast<Status>(answer.get<uint8_t>());
  if (status == kFine) return {};
  answer.get<uint64_t>();  // which frame
  return read_failure(status, answer);
}

void Journal::answered(const Reader& answer) {
  auto& frame = frames_.back();
  frame.answered = true;
  executed_ = frame.number;
  auto failure = failure_in(answer);
  if (!failure) return;
  frame.failed = leaves_another_card(*failure);
  // Elsewhere it might not fail, as for want of memory, and what the program has been told is skipped would be done.
  if (is_of_operator(*failure) && told_failed_ < kMostTold) condemn(failure->operation + failure->step, frame.number), told_failed_++;
}

// At servers that have not executed this frame, the operation is an error.
void Journal::condemn(uint64_t operation, uint64_t frame) {
  Bytes command;
  put<uint8_t>(command, kCondemn);
  put(command, operation);
  standing_.push_back({0, 0, frame, std::move(command), false});
}

void Journal::executed(Bytes shapes) {
  bytes_ += shapes.size();
  frames_.back().executed = std::move(shapes);
}

void Journal::answered_bulk(uint64_t bytes) { frames_.back().answered_bulk = bytes; }

void Journal::abandoned(uint64_t bulk) {
  auto& frame = frames_.back();
  frame.answered = frame.abandoned = true;
  frame.answered_bulk = bulk;
}

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
    auto& gone = frames_.front();
    bytes_ -= gone.commands.size() + gone.bulk.size() + gone.executed.size();
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

static bool hear(const Transport& to, Bytes& answer) {
  const uint8_t* bytes;
  size_t length;
  if (to.receive(to.state, &bytes, &length) != kDone) return false;
  answer.assign(reinterpret_cast<const char*>(bytes), length);
  return true;
}

// What follows an answer, if it says that something does.
static bool pass_over_bulk(const Transport& to, uint64_t bulk, const Bytes& answer) {
  if (answer.size() <= kAnswerHead || answer[0] != kFine || !answer[kAnswerHead]) bulk = 0;
  Bytes none(bulk, '\0');
  return bulk == 0 || to.bulk_receive(to.state, reinterpret_cast<uint8_t*>(none.data()), bulk) == kDone;
}

static bool pass_over_answer(const Transport& to, uint64_t bulk, Bytes& answer) {
  return hear(to, answer) && pass_over_bulk(to, bulk, answer);
}

bool Journal::tell_standing(uint64_t sequence, const Transport& to) {
  Bytes frame(1, static_cast<char>(kUncounted)), answer;
  auto flush = [&](bool asks) {
    if (frame.size() > 1 && !say(to, frame)) return false;
    frame.resize(1);
    return !asks || pass_over_answer(to, 0, answer);
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
  Bytes answer;
  return say(to, {static_cast<char>(kUncounted), static_cast<char>(kRepeat)}) && (!heard || pass_over_answer(to, 0, answer));
}

static bool say_all(const Transport& to, const Bytes& commands, const Bytes& bulk) {
  if (!say(to, commands)) return false;
  return bulk.empty() || to.bulk_send(to.state, reinterpret_cast<const uint8_t*>(bulk.data()), bulk.size()) == kDone;
}

static bool watch(const Transport& to, bool on) { return say(to, {static_cast<char>(kUncounted), static_cast<char>(kWatch), static_cast<char>(on)}); }

// What is wrong with an answer to a frame that is told again.
Journal::Trouble Journal::trouble_in(Frame& frame, const Bytes& answer) {
  auto failure = failure_in(Reader(answer));
  bool fails = failure && leaves_another_card(*failure);
  if (std::exchange(frame.abandoned, false)) {
    frame.failed = fails;
    return {Trouble::kNone, failure};
  }
  // The program waits for what a read has found.
  bool awaited = frame.asked_bulk && !frame.answered_bulk && frame.number == frames_.back().number;
  if (failure && (awaited || (fails && !frame.failed))) return {Trouble::kFails, failure};
  if (!fails && frame.failed) return {Trouble::kWorks, {}};
  if (frame.executed.empty() || failure) return {};
  Reader now(answer), before(frame.executed);
  now.take(kAnswerHead);
  if (read_executed(now) == read_executed(before)) return {};
  return {Trouble::kOtherShapes, {}};
}

// Tells a frame that may end its server.
bool Journal::tell_watched(Frame& frame, const Transport& to, Trouble& trouble) {
  // What breaks here is found out below, where it is heard what the server had said before it ended.
  if (watch(to, true) && say_all(to, frame.commands, frame.bulk)) watch(to, false);
  Bytes answer;
  for (bool due = frame.asks; hear(to, answer);) {
    Reader from(answer);
    if (from.get<uint8_t>() == kAnnounced) {
      begun_ = Operation{from.get<uint64_t>(), frame.number};
    } else if (!std::exchange(due, false)) {
      begun_.reset();
      executed_ = std::max(executed_, frame.number);
      return true;
    } else if (!pass_over_bulk(to, frame.answered ? frame.answered_bulk : frame.asked_bulk, answer)) {
      return false;
    } else if (!frame.answered) {
      heard_newest_ = true;
    } else if ((trouble = trouble_in(frame, answer))) {
      return false;
    }
  }
  return false;
}

bool Journal::tell_frame(Frame& frame, uint64_t sequence, const Transport& to, Trouble& trouble) {
  // Executed, and nobody has heard whether with an error. Later frames were told only where that was heard.
  bool unheard = frame.abandoned && frame.number == sequence;
  if (frame.number <= sequence && !unheard) return true;
  if (unheard ? !ask_again(to, false) : !say_all(to, frame.commands, frame.bulk)) return false;
  if (!frame.answered) return true;
  Bytes answer;
  if (!pass_over_answer(to, frame.answered_bulk, answer)) return false;
  trouble = trouble_in(frame, answer);
  return !trouble;
}

// Whether the server before ended by an operation: it said that it begins it, and the next one stands before that.
void Journal::judge(uint64_t sequence) {
  auto begun = std::exchange(begun_, std::nullopt);
  if (!begun || sequence >= begun->frame) return;
  if (!suspect_ || suspect_->number != begun->number) suspect_ = begun;
  if (++suspect_->ended < kMostEnded) return;
  condemn(suspect_->number, suspect_->frame);
  suspect_.reset();
}

bool Journal::tell(uint64_t sequence, const Transport& to, Trouble& trouble) {
  heard_newest_ = false;
  judge(sequence);
  // Where telling has broken off before, what was executed once may be at fault as well.
  bool all = std::exchange(telling_, true);
  if (!tell_standing(sequence, to)) return false;
  for (auto& frame : frames_) {
    bool watched = frame.number > sequence && (all || frame.number > executed_);
    if (watched ? !tell_watched(frame, to, trouble) : !tell_frame(frame, sequence, to, trouble)) return false;
  }
  telling_ = false;
  return true;
}

}  // namespace tessera
