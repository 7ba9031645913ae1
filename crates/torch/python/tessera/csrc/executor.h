// The executor: runs the stream of one program on the device of a slice, in order.
//
// It believes nothing of what it reads. An error of an operation is kept, and told with the next reply; what comes between is
// skipped, so that the program sees the first error and no other. One thread runs it.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>

#include <memory>
#include <optional>
#include <unordered_map>

#include "codec.h"
#include "transport.h"

namespace tessera {

// An error as it travels to the program.
struct Failure {
  Status status;
  uint64_t operation;
  std::string name, text;
  uint32_t graph = 0, step = 0;  // where in which replay
};

class Executor {
 public:
  Executor(c10::Device device, uint64_t memory_bytes, const Gate* gate, bool gated, int threads);

  // Runs frames of this connection until it ends (false), or until a snapshot is asked for or somebody of this process wants to be heard
  // (true): then everything that came is executed, and the stream stands between two frames.
  bool serve(const Transport* transport);
  // The name of the snapshot that the program asks for with the last frame, if it does.
  std::optional<std::string> take_snapshot() { return std::exchange(snapshot_, std::nullopt); }
  void answer_snapshot(const Transport* transport, const std::string& error);

  // For snapshots, between operations.
  std::vector<std::pair<uint64_t, Tensor>> storages() const;
  void load(uint64_t id, const Tensor& bytes);
  void forget_connection();
  // What the program has not heard for certain: an error that is to be told, and the last answer.
  Bytes untold() const;
  void set_untold(const Bytes& text);
  const Tensor& answered_bulk() const { return answer_bulk_; }
  void set_answered_bulk(const Tensor& bulk) { answer_bulk_ = bulk; }
  c10::Device device() const { return device_; }

  uint64_t sequence = 0, operations = 0, used = 0, peak = 0, limit;
  uint64_t held() const { return used + reserved_; }

 private:
  struct Held {
    c10::Storage storage;
    uint64_t bytes;
  };
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
  };
  struct Defined {
    uint32_t id;
    std::string name, overload;
    Bytes key;
    bool now;
    uint64_t bytes = 0;
    std::vector<Outcome> outcomes;
  };
  struct Call;
  // One operation as a program has issued it.
  struct Issued {
    uint32_t id;
    size_t slots, changing, results;
    Reader storages, numbers, names;
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
  void define(Reader& frame);
  Defined read_definition(Reader& frame) const;
  std::unique_ptr<Template> check_definition(Defined&& from) const;
  static Issued read_issued(Reader& frame);
  static void check_issued(const Issued& issued, const Template& of, bool now);
  void execute(Reader& frame, bool now, const Transport* transport);
  Bytes operate(const Template& of, Issued issued);
  void record(Reader& frame, const Transport* transport);
  std::unique_ptr<Graph> read_graph(Bytes commands) const;
  void replay(uint32_t id);
  void run_step(const Step& step);
  void forget_graph(uint32_t id);
  void reserve();
  void compute(Call& call);
  void keep_results(Call& call, Reader& names);
  Bytes describe_results(Call& call, uint64_t next);
  void recount(Call& call);
  void write(Reader& frame, const Transport* transport);
  void read(Reader& frame, const Transport* transport);
  void resize(uint64_t id, uint64_t bytes);
  void reply(const Transport* transport, const Bytes& body, Tensor bulk = {});
  void tell(const Transport* transport);
  void begin_program();
  Tensor tensor(uint64_t id, const Layout& layout) const;
  Tensor allocate(uint64_t bytes);
  void keep(uint64_t id, c10::Storage storage);
  void drop(uint64_t id);
  void ask_for(uint64_t bytes);
  void note(Status status, const std::string& name, const std::string& text);
  void note_exception(const std::string& name);
  void pay(bool all);

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
  Bytes answer_;  // the last one, until the program shows that it has it by what it sends next
  Tensor answer_bulk_;
  bool broken_ = false;
};

}  // namespace tessera
