// Rows are divided by what each server really takes for its part, and not by its rate alone: what is not divided, such as an optimiser, takes
// a slow slice longer, a rate is measured in a moment, and operators differ.
#include "group.h"

namespace tessera {

constexpr double kWorthwhile = 0.02;   // of its part, by which one must change before the rows are divided anew
constexpr int64_t kTelling = 5000000;  // nanoseconds of work, less than which tell nothing
constexpr double kScale = 1e9;

// Looks how long each server took since the last look, and what their parts should have been for all to take the same.
void Group::weigh() {
  own_.pay(true);
  uint64_t computed = own_.meters.computed;
  auto took = static_cast<int64_t>((computed - computed_) / members_.part);
  computed_ = computed;
  if (split_ != Split::kBatch) return;
  auto& weights = division_.weights();
  // The same at each server, bit by bit: each tells its own as a whole number.
  int64_t own = took < kTelling ? 0 : std::llround(weights[members_.own] * kScale * kTelling / took);
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
  if (differs) next_weights_ = next;
}

// Divides anew once next to nothing is divided, which between two steps of a training it is: what is must be made whole for that.
void Group::rebalance() {
  if (next_weights_.empty() || divided_ > most_divided_ / 16) return;
  std::vector<uint64_t> divided;
  for (auto& [id, placed] : placed_) if (placed.kind == Placed::kRows && !placed.lost) divided.push_back(id);
  std::sort(divided.begin(), divided.end());
  try {
    everywhere(divided);
  } catch (const c10::OutOfMemoryError&) {
    next_weights_.clear();
    return;
  }
  division_ = Division(std::exchange(next_weights_, {}));
  watch_.divide_anew();
  if (leads()) exchange_.divided(division_.weights());
}

}  // namespace tessera
