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
};

class Executor {
 public:
  Executor(c10::Device device, uint64_t memory_bytes, const Gate* gate, bool gated, int threads);

  // Runs frames of this connection until it ends (nothing) or a snapshot is asked for (its name).
  std::optional<std::string> serve(const Transport* transport);
  void answer_snapshot(const Transport* transport, const std::string& error);

  // For snapshots, between operations.
  std::vector<std::pair<uint64_t, Tensor>> storages() const;
  void load(uint64_t id, const Tensor& bytes);
  void forget_program();
  c10::Device device() const { return device_; }

  uint64_t sequence = 0, operations = 0, used = 0, peak = 0, limit;

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
  struct Call;

  void run(Reader& frame, const Transport* transport);
  void define(Reader& frame);
  void execute(Reader& frame, bool now, const Transport* transport);
  void compute(Call& call);
  void keep_results(Call& call, Reader& names);
  Bytes describe_results(Call& call, uint64_t next);
  void recount(Call& call);
  void write(Reader& frame, const Transport* transport);
  void read(Reader& frame, const Transport* transport);
  void resize(uint64_t id, uint64_t bytes);
  void reply(const Transport* transport, const Bytes& body);
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
  std::optional<Failure> failure_;
  std::optional<std::string> snapshot_;
};

}  // namespace tessera
