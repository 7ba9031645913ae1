// Graphs at the slice server: steps that a program has recorded, read once and checked, and run as often as it says.
//
// A replay runs its operations one by one, each through the gate and counted like any other. What it needs for storages that live
// within a step is reserved for as long as the graph is there: a replay does not run out of memory because of what came between.
#include "server/group.h"

namespace tessera {

// Memory while a step runs: what of its own storages lives at the same time.
class Footprint {
 public:
  void add(uint64_t id, uint64_t bytes) {
    TORCH_CHECK(live_.try_emplace(id, bytes).second, "a step makes storage ", id, " twice");
    TORCH_CHECK(!__builtin_add_overflow(now_, bytes, &now_), "a step that needs too much memory");
    peak_ = std::max(peak_, now_);
  }
  void remove(uint64_t id) {
    auto found = live_.find(id);
    if (found == live_.end()) return;
    now_ -= found->second;
    live_.erase(found);
  }
  const std::unordered_map<uint64_t, uint64_t>& live() const { return live_; }
  uint64_t now() const { return now_; }
  uint64_t peak() const { return peak_; }

 private:
  std::unordered_map<uint64_t, uint64_t> live_;
  uint64_t now_ = 0, peak_ = 0;
};

std::unique_ptr<Executor::Graph> Executor::read_graph(Bytes commands) const {
  auto graph = std::make_unique<Graph>();
  graph->commands = std::move(commands);
  Reader from(graph->commands);
  Footprint footprint;
  while (!from.done()) {
    auto command = static_cast<Command>(from.get<uint8_t>());
    Step step{command};
    if (command == kDefine) {
      auto definition = read_definition(from);
      auto id = definition.id;
      graph->templates[id] = check_definition(std::move(definition));
      continue;
    }
    if (command == kFree) {
      footprint.remove(step.storage = from.get<uint64_t>());
    } else if (command == kAllocate) {
      step.storage = from.get<uint64_t>(), step.bytes = from.get<uint64_t>();
      footprint.add(step.storage, step.bytes);
    } else {
      TORCH_CHECK(command == kExecute, "command ", int(command), " cannot be a part of a step");
      step.issued = read_issued(from);
      auto found = graph->templates.find(step.issued->id);
      TORCH_CHECK(found != graph->templates.end(), "a step uses template ", step.issued->id, ", which it does not define");
      step.of = found->second.get();
      check_issued(*step.issued, *step.of, false);
      Reader names = step.issued->names;
      for (auto& outcome : step.of->outcomes) if (outcome.kind == kNew) footprint.add(names.get<uint64_t>(), outcome.bytes);
    }
    graph->steps.push_back(std::move(step));
  }
  for (auto& [id, bytes] : footprint.live()) graph->left.push_back(id);
  graph->left_bytes = footprint.now();
  graph->workspace = footprint.peak() - footprint.now();
  return graph;
}

void Executor::record(Reader& frame, const Transport* transport) {
  auto id = frame.get<uint32_t>();
  auto commands = frame.text();
  Bytes body;
  try {
    TORCH_CHECK(!graphs_.count(id), "there is a graph ", id, " already");
    TORCH_CHECK(graphs_.size() < kMostGraphs, "a program can have ", kMostGraphs, " graphs at a time; let go of one");
    TORCH_CHECK(commands.size() <= kMostGraphBytes - graph_bytes_, "all graphs of a program can have ", kMostGraphBytes,
                " bytes of commands; let go of one");
    auto graph = read_graph(std::move(commands));
    // After a move what the step leaves behind is there already.
    uint64_t more = graph->left_bytes, before = reserved_;
    for (auto left : graph->left) if (auto found = storages_.find(left); found != storages_.end()) more -= std::min(more, found->second.bytes);
    uint64_t with = std::max(before, graph->workspace) - before;
    TORCH_CHECK(!__builtin_add_overflow(more, with, &more), "a step that needs too much memory");
    // The servers of a group count what a replay needs when it needs it.
    if (!group_) ask_for(more);
    put(body, graph->workspace);
    graph_bytes_ += graph->commands.size();
    graphs_[id] = std::move(graph);
    reserve();
  } catch (...) {
    note_for_all("recording a step");
  }
  reply(transport, body);
}

// The most that any of the graphs needs: one is replayed at a time.
void Executor::reserve() {
  reserved_ = 0;
  if (!group_) for (auto& [id, graph] : graphs_) reserved_ = std::max(reserved_, graph->workspace);
}

void Executor::forget_graph(uint32_t id) {
  auto found = graphs_.find(id);
  if (found == graphs_.end()) return;
  graph_bytes_ -= found->second->commands.size();
  graphs_.erase(found);
  reserve();
}

void Executor::replay(uint32_t id, const Names* names) {
  auto found = graphs_.find(id);
  TORCH_CHECK(found != graphs_.end(), "there is no graph ", id);
  auto& graph = *found->second;
  uint64_t first = operations + 1;
  uint32_t at = 0;
  bool failed_before = failure_.has_value();
  // What every server of a group skips; one that has failed alone goes on with the others.
  auto skips = [&] { return group_ ? group_->failed : failure_.has_value(); };
  replaying_ = true;
  if (!skips()) for (auto left : graph.left) forget(left);
  for (auto& step : graph.steps) {
    if (step.command == kExecute) operations++;
    if (!skips() || step.command == kFree) run_step(step, names);
    if (failure_ && !failed_before) {
      failed_before = true;
      failure_->operation = first, failure_->graph = id, failure_->step = at;
    }
    if (step.command == kExecute) at++;
  }
  replaying_ = false;
}

// A replay that works on these storages instead of those that the step names, and whose own get names of the caller.
void Executor::call_graph(Reader& frame) {
  auto id = frame.get<uint32_t>();
  auto pairs = [&] {
    std::vector<std::pair<uint64_t, uint64_t>> of(frame.count());
    for (auto& [in_step, outside] : of) in_step = frame.get<uint64_t>(), outside = frame.get<uint64_t>();
    return of;
  };
  auto lent = pairs(), left = pairs();
  if (group_) {
    // Where storages are is in a book of several servers: there they keep their names, and the step is read with them.
    Names names(lent.begin(), lent.end());
    names.insert(left.begin(), left.end());
    return replay(id, &names);
  }
  // Names for the time of the replay. They count nothing: what lies behind them is counted already.
  for (auto& [in_step, outside] : lent) {
    TORCH_CHECK(!storages_.count(in_step), "storage ", in_step, " is there, and no stand-in");
    if (auto found = storages_.find(outside); found != storages_.end()) storages_.emplace(in_step, Held(found->second));
  }
  auto give_back = [&] {
    for (auto& [in_step, outside] : lent) {
      auto found = storages_.find(in_step);
      if (found == storages_.end()) continue;
      if (auto owner = storages_.find(outside); owner != storages_.end()) owner->second.bytes = found->second.bytes;
      storages_.erase(found);
    }
  };
  try {
    replay(id);
  } catch (...) {
    give_back();
    throw;
  }
  give_back();
  for (auto& [in_step, outside] : left) {
    auto made = storages_.extract(in_step);
    if (made.empty()) continue;  // because of an error
    TORCH_CHECK(!storages_.count(outside), "storage ", outside, " is there already");
    made.key() = outside;
    storages_.insert(std::move(made));
  }
}

static uint64_t named(uint64_t id, const std::unordered_map<uint64_t, uint64_t>* names) {
  if (!names) return id;
  auto found = names->find(id);
  return found == names->end() ? id : found->second;
}

void Executor::run_step(const Step& step, const Names* names) {
  if (step.command == kFree) return forget(named(step.storage, names));
  if (step.command == kAllocate) return allocate_or_resize(false, named(step.storage, names), step.bytes);
  if (!names) {
    operate(*step.of, *step.issued);
    return;
  }
  auto issued = *step.issued;
  Bytes called;
  for (auto* ids : {&issued.storages, &issued.names}) for (Reader from = *ids; !from.done();) put(called, named(from.get<uint64_t>(), names));
  issued.storages = Reader(called.data(), issued.storages.left());
  issued.names = Reader(called.data() + issued.storages.left(), issued.names.left());
  operate(*step.of, issued);
}

}  // namespace tessera
