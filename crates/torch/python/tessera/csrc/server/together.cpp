// One operation at each server of a group: who runs it, on what, and what is known of its results.
#include "server/attention.h"
#include "server/group.h"

#include <ATen/ops/empty.h>

namespace tessera {

int64_t outermost(const Layout& of) {
  int found = -1;
  for (size_t i = 0; i < of.sizes.size(); i++) {
    if (of.sizes[i] > 1 && (found < 0 || of.strides[i] > of.strides[found])) found = i;
  }
  return found < 0 ? 0 : of.sizes[found];
}

// Whether each element of the lists is computed by itself, as optimisers do with their parameters.
static bool is_of_elements(const std::string& name) {
  return name.rfind("aten::_foreach_", 0) == 0 || name.rfind("aten::_fused_adam", 0) == 0 || name.rfind("aten::_fused_sgd", 0) == 0;
}

const Signature& Group::signature(const Executor::Template& of) {
  if (of.seen) return *of.seen;
  auto made = std::make_shared<Signature>();
  auto& schema = of.op.schema();
  std::vector<char> nothing(kScalar * (of.key.size() + 1));
  Reader key(of.key), changing(nothing.data(), nothing.size());
  auto make = [&](const Layout& layout) {
    made->slots.push_back(layout);
    return at::empty({0}, at::TensorOptions(layout.type));
  };
  Decoder decoder(key, changing, own_.device(), make);
  bool each = is_of_elements(schema.name());
  for (size_t i = 0; i < schema.arguments().size(); i++) {
    size_t before = made->slots.size();
    made->plain.push_back(decoder.value());
    auto& value = made->plain.back();
    auto* alias = schema.arguments()[i].alias_info();
    bool written = alias && alias->isWrite(), listed = value.isTensorList();
    for (size_t slot = before; slot < made->slots.size(); slot++) {
      made->argument.push_back(i);
      made->element.push_back(listed ? int(slot - before) : -1);
      made->written.push_back(written);
    }
    if (!listed) {
      each &= !(written && made->slots.size() > before);
      continue;
    }
    size_t count = value.toTensorVector().size();
    if (count == 0) continue;
    each &= made->slots.size() - before == count && (made->elements == 0 || made->elements == count);
    made->elements = count;
  }
  made->each = each && made->elements > 0;
  made->random = of.op.hasTag(at::Tag::nondeterministic_seeded) && !is_attention(of.op);
  return *(of.seen = made);
}

// The storages that an operation works on, in the same order at each server, and whether it writes them.
static std::map<uint64_t, bool> distinct(const Signature& seen, const std::vector<uint64_t>& ids) {
  std::map<uint64_t, bool> found;
  for (size_t i = 0; i < ids.size(); i++) found[ids[i]] |= seen.written[i];
  return found;
}

// Optimisers: each element where its parameter is.
bool Group::each_where_it_is(const Executor::Template& of, const Signature& seen, const std::vector<uint64_t>& ids, Decision& decision) {
  if (!seen.each || seen.random || (!of.outcomes.empty() && of.outcomes.size() != seen.elements)) return false;
  std::vector<std::map<uint64_t, uint64_t>> needed(seen.elements);  // storages of each element, and their bytes
  std::vector<int> last(seen.elements, -1);
  for (size_t i = 0; i < ids.size(); i++) {
    int element = seen.element[i];
    if (element < 0) continue;
    auto& placed = book(ids[i]);
    needed[element][ids[i]] = placed.bytes;
    if (placed.kind == Placed::kWhole) last[element] = __builtin_ctzll(placed.holders);
  }
  decision.homes.assign(seen.elements, 0);
  auto used = used_;
  for (size_t element = 0; element < seen.elements; element++) {
    uint64_t gives = of.outcomes.empty() ? 0 : of.outcomes[element].bytes;
    auto bytes_at = [&](int server) {
      uint64_t sum = 0;
      for (auto& [id, bytes] : needed[element]) if (book(id).kind == Placed::kWhole && book(id).at(server)) sum += bytes;
      return sum;
    };
    uint64_t all_of_it = gives;
    for (auto& [id, bytes] : needed[element]) all_of_it += bytes;
    auto has_room = [&](int server) { return used[server] + all_of_it - bytes_at(server) <= servers_.memory[server]; };
    // Where most of it is; of two, where the last argument is: gradients are where their parameters are, and what an optimiser keeps
    // comes to them.
    int best = last[element] < 0 ? home(all_of_it) : last[element];
    for (int server = 0; server < size(); server++) if (bytes_at(server) > bytes_at(best)) best = server;
    if (!has_room(best)) {
      for (int server : fastest_first_) if (has_room(server)) best = server;
    }
    used[best] += all_of_it - bytes_at(best);
    decision.homes[element] = best;
  }
  decision.how = Decision::kEach;
  return true;
}

// Plan `layers`: an operation runs where most of what it needs is, and there is room for what it gives.
Decision Group::where_storages_are(const Executor::Template& of, const Signature& seen, const std::vector<uint64_t>& ids) {
  Decision decision;
  if (each_where_it_is(of, seen, ids, decision)) return decision;
  decision.how = Decision::kOne;
  std::vector<double> there(size(), 0), missing(size(), of.new_bytes);
  bool any = false;
  for (auto [id, written] : distinct(seen, ids)) {
    auto& placed = book(id);
    for (int server = 0; server < size(); server++) {
      if (placed.kind == Placed::kWhole && placed.at(server)) {
        // What is written stays where it is before all else, because it is worked on again.
        there[server] += (written ? 4.0 : 1.0) * (placed.bytes + 1);
        any = true;
      } else {
        missing[server] += placed.bytes;
      }
    }
  }
  decision.at = home(missing[0]);
  if (!any) return decision;
  double best = -1;
  for (bool must_fit : {true, false}) {
    for (int server = 0; server < size(); server++) {
      if (there[server] <= best || (must_fit && !fits(server, missing[server]))) continue;
      best = there[server];
      decision.at = server;
    }
    if (best >= 0) break;
  }
  return decision;
}

Decision Group::decide(const Executor::Template& of, const Signature& seen, const std::vector<uint64_t>& ids) {
  TORCH_CHECK(ids.size() == seen.slots.size(), "it does not match its template");
  std::vector<const Placed*> placed;
  for (size_t i = 0; i < ids.size(); i++) {
    auto& known = book(ids[i]);
    if (!known.rows) known.rows = outermost(seen.slots[i]);
    placed.push_back(&known);
  }
  if (seen.random && !servers_.alike) {
    Decision decision;
    decision.how = Decision::kOne;
    return decision;
  }
  if (split_ != Split::kBatch) return where_storages_are(of, seen, ids);
  Decision decision;
  if (!seen.random && divide_rows({of, seen, placed, division_, servers_.own}, decision)) return decision;
  return Decision{};
}

void Group::prepare(const Decision& decision, const Signature& seen, const std::vector<uint64_t>& ids) {
  switch (decision.how) {
    case Decision::kOne:
      if (seen.random) random_at(uint64_t(1) << decision.at);
      for (auto [id, written] : distinct(seen, ids)) at_one(id, decision.at, written);
      elsewhere_ |= decision.at != 0;
      counted.one++;
      break;
    case Decision::kAll:
      if (seen.random) random_at(all());
      everywhere(ids);
      elsewhere_ = true;
      counted.all++;
      break;
    case Decision::kEach:
      for (size_t i = 0; i < ids.size(); i++) {
        if (seen.element[i] >= 0) at_one(ids[i], decision.homes[seen.element[i]], seen.written[i]);
        else everywhere({ids[i]});
      }
      elsewhere_ = true;
      counted.each++;
      break;
    case Decision::kRows: {
      std::vector<uint64_t> whole;
      for (size_t i = 0; i < ids.size(); i++) {
        auto& placed = book(ids[i]);
        int dim = decision.dims[i];
        bool divided = dim >= 0 && placed.kind == Placed::kRows && placed.units == decision.units &&
                       row_dimension(seen.slots[i], placed.units, placed.bytes) == dim;
        if (!divided && !(dim >= 0 && seen.written[i])) whole.push_back(ids[i]);
      }
      everywhere(whole);
      for (size_t i = 0; i < ids.size(); i++) if (seen.written[i]) by_rows(ids[i], decision.units);
      elsewhere_ = true;
      counted.rows++;
      break;
    }
  }
  for (size_t i = 0; i < ids.size(); i++) if (seen.written[i]) wrote(book(ids[i]));
}

// Books the results, all or none.
void Group::expect(const Decision& decision, const Executor::Template& of, const std::vector<uint64_t>& names) {
  size_t next = 0, flat = 0;
  Coming coming;
  for (auto& outcome : of.outcomes) {
    size_t at = flat++;
    if (outcome.kind != kNew) continue;
    TORCH_CHECK(next < names.size(), "a command is cut short");
    auto id = names[next++];
    check_new(id);
    Placed placed;
    placed.bytes = outcome.bytes;
    placed.rows = outermost(outcome.layout);
    placed.made = placed.first = placed.written = own_.operations;
    placed.kind = Placed::kWhole;
    placed.holders = all();
    if (decision.how == Decision::kOne) placed.holders = uint64_t(1) << decision.at;
    if (decision.how == Decision::kEach) placed.holders = uint64_t(1) << decision.homes.at(at);
    if (decision.how == Decision::kRows && decision.results[at] >= 0) placed.kind = Placed::kRows, placed.units = decision.units, placed.holders = 0;
    if (decision.how == Decision::kRows && decision.results[at] == Decision::kSum) placed.kind = Placed::kSum, placed.type = outcome.layout.type;
    coming.emplace_back(id, placed);
  }
  provide(coming);
  for (auto& [id, placed] : coming) note(id, placed);
}

// What an operator works on at this server.
Tensor Group::view(uint64_t id, const Layout& layout, const Decision& decision, int dimension) {
  if (decision.how != Decision::kRows || dimension < 0) return own_.tensor(id, layout);
  auto units = decision.units, part = division_.part(units, servers_.own);
  if (placed_.at(id).kind == Placed::kRows) return own_.tensor(id, of_part(layout, dimension, units, part));
  return own_.tensor(id, within_whole(layout, dimension, units, division_.of(units)[servers_.own], part));
}

// Leaves of each list the elements that belong to this server.
static void select(torch::jit::Stack& stack, const std::vector<size_t>& own, size_t elements) {
  for (auto& value : stack) {
    if (!value.isList() || value.toListRef().size() != elements) continue;
    auto all = value.toList();
    c10::impl::GenericList some(all.elementType());
    for (auto i : own) some.push_back(all.get(i));
    value = some;
  }
}

void Group::run(const Decision& decision, const Executor::Template& of, const Signature& seen, const std::vector<uint64_t>& ids,
                const std::vector<uint64_t>& names, Reader numbers) {
  std::vector<size_t> own;
  for (size_t i = 0; i < decision.homes.size(); i++) if (decision.homes[i] == servers_.own) own.push_back(i);
  bool here = decision.how == Decision::kOne ? decision.at == servers_.own : decision.how != Decision::kEach || !own.empty();
  if (!here || own_.failure_) return;
  try {
    Executor::Call call{of};
    std::vector<Executor::Outcome> outcomes = of.outcomes;
    call.outcomes = &outcomes;
    Bytes kept(reinterpret_cast<const char*>(names.data()), 8 * names.size());
    size_t slot = 0;
    Reader key(of.key);
    auto make = [&](const Layout& layout) {
      auto at = slot++;
      if (decision.how == Decision::kEach && seen.element[at] >= 0 && decision.homes[seen.element[at]] != servers_.own) {
        return at::empty({0}, at::TensorOptions(layout.type).device(own_.device()));
      }
      call.inputs.push_back(view(ids[at], layout, decision, decision.how == Decision::kRows ? decision.dims[at] : -1));
      return call.inputs.back();
    };
    Decoder decoder(key, numbers, own_.device(), make);
    for (size_t i = 0; i < of.op.schema().arguments().size(); i++) call.stack.push_back(decoder.value());
    if (decision.how == Decision::kEach) {
      select(call.stack, own, seen.elements);
      if (!outcomes.empty()) {
        outcomes.clear(), kept.clear();
        for (auto i : own) outcomes.push_back(of.outcomes.at(i)), put(kept, names.at(i));
      }
    }
    for (size_t i = 0; i < outcomes.size(); i++) {
      auto& outcome = outcomes[i];
      if (decision.how != Decision::kRows || outcome.kind != kNew || decision.results[i] < 0) continue;
      auto part = division_.part(decision.units, servers_.own);
      outcome.layout = of_part(outcome.layout, decision.results[i], decision.units, part);
      outcome.bytes = outcome.bytes / decision.units * part;
    }
    if (decision.before) decision.before(call.stack);
    own_.call(call);
    if (decision.after) decision.after(call.stack);
    own_.keep_results(call, Reader(kept));
  } catch (...) {
    own_.note_exception(of.op.schema().name());
  }
}

// Under watch each operation begins when all servers have done those before it: so the one that was announced last is the one by which a
// server has ended.
void Group::announce() {
  if (own_.watched_) meet();
  own_.announce();
}

void Group::operate(const Executor::Template& of, Executor::Issued issued) {
  if (failed || !lost.empty()) return;
  std::vector<uint64_t> ids(issued.slots), names(issued.results);
  for (auto& id : ids) id = issued.storages.get<uint64_t>();
  for (auto& name : names) name = issued.names.get<uint64_t>();
  try {
    announce();
    auto& seen = signature(of);
    Decision decision;
    with_room([&] {
      decision = decide(of, seen, ids);
      prepare(decision, seen, ids);
      expect(decision, of, names);
    });
    run(decision, of, seen, ids, names, issued.numbers);
    if (decision.divide) {
      std::vector<uint64_t> both(names.begin(), names.begin() + 2);
      sum(both);
      if (!own_.failure_) own_.tensor(both[0], of.outcomes[0].layout).div_(own_.tensor(both[1], of.outcomes[1].layout));
    }
    watch(of, seen, ids, names);
    reconsider();
  } catch (const Lost&) {
    throw;
  } catch (...) {
    own_.note_exception(of.op.schema().name());
    failed = true;
  }
}

// What only the execution tells runs at the first server, which says what came of it, to the others too.
Bytes Group::operate_now(const Executor::Template& of, Executor::Issued issued) {
  if (failed || !lost.empty()) return {};
  std::vector<uint64_t> ids(issued.slots);
  for (Reader names = issued.storages; auto& id : ids) id = names.get<uint64_t>();
  try {
    announce();
    auto& seen = signature(of);
    TORCH_CHECK(ids.size() == seen.slots.size(), "it does not match its template");
    if (seen.random) random_at(1);
    with_room([&] { for (auto [id, written] : distinct(seen, ids)) at_one(id, 0, written); });
    for (size_t i = 0; i < ids.size(); i++) if (seen.written[i]) wrote(book(ids[i]));
    Reader(issued.names).get<uint64_t>();
  } catch (const Lost&) {
    throw;
  } catch (...) {
    own_.note_exception(of.op.schema().name());
    failed = true;
    return {};
  }
  Bytes answer, told;
  if (leads() && !own_.failure_) answer = own_.operate_alone(of, issued, &told);
  told = learn(std::move(told));
  for (Reader from(told); !from.done();) {
    Placed placed;
    auto id = from.get<uint64_t>();
    placed.bytes = from.get<uint64_t>();
    placed.kind = Placed::kWhole, placed.holders = 1, placed.first = placed.written = own_.operations;
    note(id, placed);
  }
  return answer;
}

// What the first server says, at each.
Bytes Group::learn(Bytes told) {
  int64_t length = exchange_.gather(told.size())[0];
  if (length == 0) return {};
  Tensor text = at::empty({length}, at::kByte);
  if (leads()) std::memcpy(text.mutable_data_ptr(), told.data(), length);
  exchange_.spread({{text, 0}});
  return {static_cast<const char*>(text.const_data_ptr()), size_t(length)};
}

}  // namespace tessera
