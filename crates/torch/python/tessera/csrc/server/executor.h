// The executor: runs the stream of one program on the device of a slice, in order.
//
// It believes nothing of what it reads. An error of an operation is kept, and told with the next reply; what comes between is
// skipped, so that the program sees the first error and no other. One thread runs it.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <time.h>

#include <atomic>
#include <memory>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "wire/codec.h"
#include "wire/failure.h"
#include "wire/transport.h"

namespace tessera {

// What an executor has done so far, for whoever looks from another thread: nanoseconds, bytes and numbers.
struct Meters {
  std::atomic<uint64_t> computed{0}, waited{0}, bytes{0}, operations{0}, held{0};
  std::atomic<uint64_t> queued{0};  // bytes of commands that came and were not executed yet
};

// A storage in a snapshot. Where it was matters to a card that is divided as that was.
struct Holding {
  enum Kind : uint8_t { kNowhere, kWhole, kRows };  // as in a book of storages (placing.h)
  uint64_t id = 0, bytes = 0;
  Kind kind = kWhole;
  uint64_t holders = 0;         // none: wherever the plan has such
  int64_t units = 0, rows = 0;
};

uint64_t clock_of(clockid_t id);  // nanoseconds
// Bytes of a storage that lie together, as a tensor.
Tensor bytes_of(const c10::Storage& storage, int64_t begin, int64_t length, c10::Device device);

class Group;
struct Exchange;
struct Servers;
struct Signature;

class Executor {
 public:
  struct Outcome {
    Result kind;
    Layout layout;
    uint64_t bytes = 0;
  };
  struct Template {
    c10::OperatorHandle op;
    Bytes key;
    bool now;
    size_t slots = 0, changing = 0;
    uint64_t new_bytes = 0;
    std::vector<Outcome> outcomes;
    mutable std::shared_ptr<Signature> seen;  // what a group has found out about it
  };
  // One operation as a program has issued it.
  struct Issued {
    uint32_t id;
    size_t slots, changing, results;
    Reader storages, numbers, names;
  };

  Executor(c10::Device device, uint64_t memory_bytes, const Gate* gate, bool gated, int threads);
  ~Executor();

  // Runs frames of this connection until it ends (false), or until a snapshot is asked for or somebody of this process wants to be heard
  // (true): then everything that came is executed, and the stream stands between two frames.
  bool serve(const Transport* transport);
  // The name of the snapshot that the program asks for with the last frame, if it does.
  std::optional<std::string> take_snapshot() { return std::exchange(snapshot_, std::nullopt); }
  void answer_snapshot(const Transport* transport, const std::string& error);

  // For snapshots, between operations (snapshots.cpp): what is held is read and written a piece at a time, so that no host holds all of it.
  void quiesce();
  std::vector<Holding> holdings() const;
  Tensor fetch(uint64_t id, uint64_t begin, uint64_t length);
  void hold(const Holding& was);
  void store(uint64_t id, uint64_t begin, const Tensor& piece);
  void restored();
  void forget_connection();
  // What the program has not heard for certain: an error that is to be told, and the last answer.
  Bytes failure_text() const;
  void set_failure_text(const Bytes& text);
  Bytes untold() const;
  void set_untold(const Bytes& text);
  const Tensor& answered_bulk() const { return answer_bulk_; }
  void set_answered_bulk(const Tensor& bulk) { answer_bulk_ = bulk; }
  c10::Device device() const { return device_; }

  uint64_t sequence = 0, operations = 0, used = 0, peak = 0, limit;
  uint64_t held() const;
  Meters meters;

  // As one of several servers of a card (group.h): the first one, which passes the stream on, or another.
  void join(Exchange exchange, Servers servers, const std::string& split);
  void lead(const Transport* follower);
  Group* group() const { return group_.get(); }
  const std::string& broken_device() const { return broken_device_; }
  std::string about;  // what a program is told of a group, as JSON
  // Whether the program looks for another server when its connection breaks, and so needs no error when a part of its card is gone.
  bool comes_again = false;
  bool over() const { return over_; }      // the first server has ended in order
  void tell_followers(Command command);
  at::Tensor random_state() const;
  void set_random_state(const at::Tensor& state);

 private:
  friend class Group;
  struct Held {
    c10::Storage storage;
    uint64_t bytes;
  };
  struct Defined {
    uint32_t id;
    std::string name, overload;
    Bytes key;
    bool now;
    uint64_t bytes = 0;
    std::vector<Outcome> outcomes;
  };
  struct Call {
    const Template& of;
    torch::jit::Stack stack;
    std::vector<Tensor> inputs;
    std::vector<Held*> held;
    std::vector<Layout> before;
    const std::vector<Outcome>* outcomes = &of.outcomes;  // what it is to give at this server
  };
  struct Step {
    Command command;
    const Template* of = nullptr;
    std::optional<Issued> issued;
    uint64_t storage = 0, bytes = 0;
  };
  // A step that a program has recorded: what it says points into its own text.
  struct Graph {
    Bytes commands;
    std::unordered_map<uint32_t, std::unique_ptr<Template>> templates;
    std::vector<Step> steps;
    std::vector<uint64_t> left;  // storages that each replay makes anew
    uint64_t left_bytes = 0, workspace = 0;
  };

  void run(Reader& frame, const Transport* transport);
  void run_frame(Reader& frame, const Transport* transport);
  void obey(Reader& frame, const Transport* transport);
  void define(Reader& frame);
  Defined read_definition(Reader& frame) const;
  std::unique_ptr<Template> check_definition(Defined&& from) const;
  static Issued read_issued(Reader& frame);
  static void check_issued(const Issued& issued, const Template& of, bool now);
  void execute(Reader& frame, bool now, const Transport* transport);
  Bytes operate(const Template& of, const Issued& issued);
  Bytes operate_alone(const Template& of, Issued issued, Bytes* made);
  template <class Work>
  void together(Work work);
  template <class Work>
  auto for_snapshot(Work work);
  void note_for_all(std::string_view name);
  void allocate_or_resize(bool grows, uint64_t id, uint64_t bytes);
  void record(Reader& frame, const Transport* transport);
  std::unique_ptr<Graph> read_graph(Bytes commands) const;
  // With other names for some storages, when there are any.
  using Names = std::unordered_map<uint64_t, uint64_t>;
  void replay(uint32_t id, const Names* names = nullptr);
  void run_step(const Step& step, const Names* names);
  void call_graph(Reader& frame);
  void forget_graph(uint32_t id);
  void reserve();
  void compute(Call& call);
  void call(Call& call);
  void keep_results(Call& call, Reader names);
  Bytes describe_results(Call& call, uint64_t next, Bytes* made);
  void recount(Call& call);
  void write(Reader& frame, const Transport* transport);
  void read(Reader& frame, const Transport* transport);
  void resize(uint64_t id, uint64_t bytes);
  void reply(const Transport* transport, const Bytes& body, Tensor bulk = {});
  void tell(const Transport* transport);
  void watch(const Transport* transport, bool on);
  void announce();
  void begin_program();
  Tensor tensor(uint64_t id, const Layout& layout) const;
  Tensor allocate(uint64_t bytes);
  void keep(uint64_t id, c10::Storage storage);
  void drop(uint64_t id);
  void forget(uint64_t id);
  void ask_for(uint64_t bytes);
  void note(Status status, std::string_view name, const std::string& text);
  void note_exception(std::string_view name);
  void enter();
  void pay(bool all);
  void wait_for_device();

  c10::Device device_;
  const Gate* gate_;
  bool gated_;
  int threads_;
  uint64_t paid_cpu_ = 0, paid_wall_ = 0, unpaid_ = 0;
  std::unordered_map<uint64_t, Held> storages_;
  std::unordered_map<uint32_t, std::unique_ptr<Template>> templates_;
  std::unordered_map<uint32_t, std::unique_ptr<Graph>> graphs_;
  uint64_t graph_bytes_ = 0, reserved_ = 0;
  bool replaying_ = false;
  std::optional<Failure> failure_;
  std::optional<std::string> snapshot_;
  struct Answered {
    Bytes answer;
    Tensor bulk;
    std::optional<Failure> failure;
  };
  Bytes answer_;  // the last one, until the program shows that it has it by what it sends next
  Tensor answer_bulk_;
  bool broken_ = false, over_ = false;
  std::string broken_device_;  // why it computes no more
  std::unique_ptr<Group> group_;
  bool watched_ = false;                     // operations are announced; in a group each begins when all servers have done those before it
  const Transport* watcher_ = nullptr;       // is told of each operation before it is executed
  std::unordered_set<uint64_t> condemned_;  // operations that are errors
};

}  // namespace tessera
