// Rows are divided by what each server really takes for its part, and not by its rate alone: what is not divided, such as an optimiser, takes
// a slow slice longer, a rate is measured in a moment, and operators differ.
#include "server/group.h"

namespace tessera {

constexpr double kWorthwhile = 0.02;   // of its part, by which one must change before the rows are divided anew
constexpr int64_t kTelling = 5000000;  // nanoseconds of work, less than which tell nothing
constexpr double kScale = 1e17;        // a number of each of 64 servers is at most that, and their sum is a whole number still

// By how many bytes each server's part becomes larger at the most. Whole numbers, so that all come to the same, however theirs round.
std::vector<int64_t> Group::growth(const std::vector<double>& next) const {
  std::vector<int64_t> more;
  for (size_t i = 0; i < next.size(); i++) more.push_back(double(most_divided_) * (next[i] - division_.weights()[i]));
  return more;
}

// What came before is no work of the program's: the start of the server, or what it read to go on.
void Group::weigh_from_now() {
  own_.pay(true);
  computed_ = own_.meters.computed;
}

// When the stream goes on after a save, which one server does for all.
void Group::go_on() {
  if (!saved_at_) return;
  own_.pay(true);
  computed_ += own_.meters.computed - *saved_at_;
  saved_at_.reset();
}

// Looks how long each server took since the last look, and what their parts should have been for all to take the same.
void Group::weigh() {
  own_.pay(true);
  uint64_t computed = own_.meters.computed;
  auto took = static_cast<int64_t>((computed - computed_) / servers_.part);
  computed_ = computed;
  if (split_ != Split::kBatch) return;
  auto& weights = division_.weights();
  // The same at each server, bit by bit: each tells its own as a whole number.
  int64_t own = took < kTelling ? 0 : std::llround(weights[servers_.own] * kScale * kTelling / took);
  auto wanted = exchange_.gather(own);
  if (std::any_of(wanted.begin(), wanted.end(), [](int64_t one) { return one <= 0; })) return;
  int64_t sum = 0;
  for (auto one : wanted) sum += one;
  bool differs = false;
  std::vector<double> next;
  for (size_t i = 0; i < wanted.size(); i++) {
    next.push_back(double(wanted[i]) / sum);
    differs |= std::abs(next[i] / weights[i] - 1) > kWorthwhile;
  }
  if (!differs) return;
  // A server that is faster than was thought is not therefore larger.
  auto more = growth(next);
  for (int server = 0; server < size(); server++) {
    if (more[server] > 0 && most_at_[server] + more[server] > servers_.memory[server]) return next_weights_.clear();
  }
  next_weights_ = next;
}

// Divides anew once next to nothing is divided, which between two steps of a training it is: what is must be made whole for that.
void Group::rebalance() {
  if (next_weights_.empty() || divided_ > most_divided_ / 16) return;
  std::vector<uint64_t> divided;
  for (auto& [id, placed] : placed_) {
    if (placed.kind != Placed::kRows) continue;
    if (!placed.lost) {
      divided.push_back(id);
      continue;
    }
    // Nobody reads what is lost. Its parts must not be counted by one division when they come and by another when they go.
    Placed nowhere = placed;
    nowhere.kind = Placed::kNowhere;
    note(id, nowhere);
    own_.drop(id);
  }
  std::sort(divided.begin(), divided.end());
  try {
    everywhere(divided);
  } catch (const c10::OutOfMemoryError&) {
    next_weights_.clear();
    return;
  }
  auto more = growth(next_weights_);
  for (int server = 0; server < size(); server++) most_at_[server] = std::max<int64_t>(used_[server], int64_t(most_at_[server]) + more[server]);
  division_ = Division(std::exchange(next_weights_, {}));
  watch_.divide_anew();
  if (leads()) exchange_.divided(division_.weights());
}

}  // namespace tessera
