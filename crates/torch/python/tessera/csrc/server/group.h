// Several slice servers as one device: what each does with an operation, so that all of them together do it once.
//
// The first server passes the stream on to the others as it is, and every server decides from the stream alone, and from the book of
// where storages are. Nobody asks another one what to do; what they exchange are tensors, over torch.distributed, and at an answer whether
// an operation failed that was not everybody's.
#pragma once
#include <functional>
#include <stdexcept>

#include "server/executor.h"
#include "server/placing.h"
#include "server/watch.h"

namespace tessera {

// A server of the group is gone, and what was on it.
struct Lost : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// What a server does by itself for all of them. They do not know when it fails, and cannot go on without it.
template <class Work>
auto by_itself(int own, Work work) {
  try {
    return work();
  } catch (const std::exception& error) {
    throw Lost(c10::str("slice ", own, " cannot do its part: ", error.what()));
  }
}

// How they share the work (plan.py); the last one is that they shall not.
enum class Split : uint8_t { kOne, kLayers, kBatch, kRefused };
Split split_of(const std::string& name);
std::string name_of(Split split);

// What is known of an operator's call besides the tensors themselves.
struct Signature {
  std::vector<Layout> slots;
  std::vector<int> argument, element;  // of each slot
  std::vector<bool> written;
  torch::jit::Stack plain;
  bool random = false, each = false;
  size_t elements = 0;
};

// How tensors travel between the servers: group.py. Each throws Lost.
struct Exchange {
  std::function<void(const Tensor&, int from, int to)> pass;
  std::function<void(const std::vector<std::pair<Tensor, int>>&)> spread;  // each from one to all
  std::function<void(const Tensor&)> sum;
  std::function<std::vector<int64_t>(int64_t)> gather;
  std::function<Split(const Work&, bool fits)> reconsider;
  std::function<void()> begin;  // with another program
  std::function<void(const std::vector<double>&)> divided;  // anew, at the first server
};

// What the servers of a group are, the same at each.
struct Servers {
  int own;
  std::vector<uint64_t> memory;
  std::vector<double> rates;
  double part;   // of its device's time that this server has
  bool alike;    // devices that draw the same random numbers
  bool changes;  // the plan may become another unasked
};

struct Decision {
  enum How : uint8_t { kOne, kAll, kRows, kEach } how = kAll;
  int at = 0;                 // kOne
  int64_t units = 0;          // kRows
  std::vector<int> dims;      // kRows: which dimension of each slot is divided; -1: it is whole
  std::vector<int> results;   // kRows: the same for each result, or one of these
  static constexpr int kWhole = -1, kSum = -2;
  bool divide = false;        // kRows: the first result is divided by the second, once both are summed
  std::function<void(torch::jit::Stack&)> before, after;
  std::vector<int> homes;     // kEach: of each element
};

// The outermost dimension of a view in memory, which for most is the batch.
int64_t outermost(const Layout& of);

// The rules for dividing by rows (rules.cpp): whether there is one for this call, and what it says.
struct Asked {
  const Executor::Template& of;
  const Signature& seen;
  const std::vector<const Placed*>& placed;
  const Division& division;
  int own;
};
bool divide_rows(const Asked& asked, Decision& decision);

struct Counted {
  uint64_t one = 0, all = 0, rows = 0, each = 0, moved_bytes = 0, summed_bytes = 0, exchanges = 0;
};

constexpr uint64_t kFirstLook = 128;  // operations after which another plan is thought about

class Group {
 public:
  Group(Executor& own, Exchange exchange, Servers servers, Split split);

  bool leads() const { return servers_.own == 0; }
  void follow(const Transport* follower) { followers_.push_back(follower); }
  void pass_on(const uint8_t* frame, size_t length);

  // Commands of the stream, at each server. What is thrown is thrown at each.
  void operate(const Executor::Template& of, Executor::Issued issued);
  Bytes operate_now(const Executor::Template& of, Executor::Issued issued);
  void made(uint64_t id, uint64_t bytes);
  void drop(uint64_t id);
  void resize(uint64_t id, uint64_t bytes);
  void write(uint64_t id, const Layout& layout, Tensor host, bool bulk);
  // What was to be written was not.
  void lose(uint64_t id) { if (auto found = placed_.find(id); found != placed_.end()) found->second.lost = true; }
  bool is_at_hand(uint64_t id);
  Tensor read(uint64_t id, const Layout& layout);
  void seeded() { random_ = servers_.alike ? all() : 1; }
  bool has_random() const { return random_ >> servers_.own & 1; }
  void random_at(uint64_t servers);
  void clear();
  // Before an answer: finds an operation that failed at one server only, and has all know it. Says whether there is one.
  bool settle();
  void ask_all() { elsewhere_ = true; }
  void meet() { exchange_.gather(0); }
  void gone(const std::string& why);
  // Whether the first server is to end for that, so that its program finds the card that takes the place of this one.
  bool must_end() const { return gone_ && own_.comes_again; }
  // What is not told yet. Frames that do not count leave it alone.
  struct Pending {
    bool failed = false, elsewhere = false;
    std::optional<uint64_t> answered;
  };
  Pending set_aside(const Pending& instead);

  // Snapshots (snapshots.cpp), at each server.
  void quiesce();
  std::vector<Holding> holdings() const;
  Tensor fetch(uint64_t id, int64_t begin, int64_t length);
  Holding place(const Holding& was) const;
  void hold(const Holding& as);
  void store(uint64_t id, int64_t begin, int64_t length, Tensor piece);
  void restored(bool failed);
  void go_on();
  void tell(const Bytes& frame);
  Split split() const { return split_; }
  const std::vector<int>& fastest_first() const { return fastest_first_; }
  int size() const { return servers_.memory.size(); }
  uint64_t held() const;
  uint64_t held_here() const { return used_[servers_.own]; }
  void describe(Bytes& to, const std::string& about) const;
  uint64_t memory() const;

  bool failed = false;  // at each server in the same way: all that follows is skipped until that is told
  Counted counted;
  std::string lost;  // why the group cannot go on

 private:
  Executor& own_;
  Exchange exchange_;
  Servers servers_;
  Division division_;
  Watch watch_;
  uint64_t watched_ = 0, next_look_ = kFirstLook, seen_peak_ = 0;
  std::vector<int> fastest_first_;
  Split first_split_, split_;
  Tensor bucket_;  // what is summed goes through it
  std::vector<const Transport*> followers_;
  std::unordered_map<uint64_t, Placed> placed_;
  std::vector<uint64_t> used_, most_at_;  // bytes at each server, and the most there were
  uint64_t divided_ = 0, most_divided_ = 0, computed_ = 0;  // bytes that are divided; nanoseconds of the device at the last look
  std::optional<uint64_t> saved_at_;                        // the same when a save began, until the stream goes on
  std::vector<double> next_weights_;                        // of the next division
  uint64_t random_, most_ = 0, answered_ = 0;  // answered_: the last operation before the last answer
  bool gone_ = false;       // another server is
  bool elsewhere_ = false;  // something was done at another server since the last answer

  uint64_t all() const { return (uint64_t(1) << size()) - 1; }
  Placed& book(uint64_t id);
  void check_new(uint64_t id) const;
  uint64_t part_of(const Placed& placed, int server) const { return tessera::part_of(placed, server, division_); }
  using Coming = std::vector<std::pair<uint64_t, Placed>>;
  void leave_out_waiting();
  void provide(const Coming& coming) const;
  void note(uint64_t id, Placed next);
  void rebook(uint64_t id, Placed next);
  void wrote(Placed& placed);
  void lose_since(int64_t first, int64_t last, int server);
  template <class Work>
  void with_room(Work work);
  bool make_room();
  bool keep_one_of_each();
  bool fits(int server, uint64_t bytes) const { return bytes <= servers_.memory[server] && used_[server] <= servers_.memory[server] - bytes; }
  Tensor room(uint64_t bytes);
  void own_part(uint64_t id, const Tensor& bytes);
  Tensor part(uint64_t id, const Placed& as);

  const Signature& signature(const Executor::Template& of);
  Decision decide(const Executor::Template& of, const Signature& seen, const std::vector<uint64_t>& ids);
  Decision where_storages_are(const Executor::Template& of, const Signature& seen, const std::vector<uint64_t>& ids);
  bool each_where_it_is(const Executor::Template& of, const Signature& seen, const std::vector<uint64_t>& ids, Decision& decision);
  int home(uint64_t bytes) const;
  void everywhere(const std::vector<uint64_t>& ids);
  void sum(const std::vector<uint64_t>& ids);
  void at_one(uint64_t id, int server, bool written);
  void by_rows(uint64_t id, int64_t units);
  void prepare(const Decision& decision, const Signature& seen, const std::vector<uint64_t>& ids);
  void expect(const Decision& decision, const Executor::Template& of, const std::vector<uint64_t>& names);
  void run(const Decision& decision, const Executor::Template& of, const Signature& seen, const std::vector<uint64_t>& ids,
           const std::vector<uint64_t>& names, Reader numbers);
  Tensor view(uint64_t id, const Layout& layout, const Decision& decision, int dimension);
  Bytes learn(Bytes told);
  void watch(const Executor::Template& of, const Signature& seen, const std::vector<uint64_t>& ids, const std::vector<uint64_t>& names);
  void reconsider();
  void weigh();
  void weigh_from_now();
  std::vector<int64_t> growth(const std::vector<double>& next) const;
  void rebalance();
  void count_divided(const Placed& before, const Placed& next);
  void announce();
  Placed placed_as(const Holding& as) const;
  bool has_room(const Holding& as) const;
};

// What may run out of memory. Where the plan may change, it is tried once more with what is left when nothing is held twice.
template <class Work>
void Group::with_room(Work work) {
  try {
    return work();
  } catch (const c10::OutOfMemoryError&) {
    if (!make_room()) throw;
  }
  work();
}

// What needs other servers. When one of them is gone, the first tells the program at its next answer; another one ends.
template <class Work>
void Executor::together(Work work) {
  try {
    work();
  } catch (const Lost& error) {
    if (!group_->leads()) throw;
    group_->gone(error.what());
  }
}

}  // namespace tessera
