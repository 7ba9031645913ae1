// The dispatcher: every operator comes here, boxed, and leaves as a few dozen bytes.
//
// What an operator gives back is inferred with meta tensors that share storages exactly as the real ones do, once for each key; from
// then on a call costs a look-up. Results that are views of arguments send nothing at all. Where inference fails, because shapes
// depend on data or the call is wrong, the operator runs at once and the server says what came of it, with PyTorch's own words.
#include "program/executed.h"
#include "program/generator.h"
#include "program/operator.h"

namespace tessera {

constexpr size_t kMostEntries = 1 << 15;  // of all caches together

static std::unordered_map<const void*, std::unique_ptr<Operator>> operators;
static size_t entries = 0;
static Words words_of;

void set_words(Words words) { words_of = std::move(words); }

static Operator& operator_of(const c10::OperatorHandle& handle) {
  auto& found = operators[&handle.schema()];
  if (found) return *found;
  auto& schema = handle.schema();
  auto& name = schema.name();
  auto is = [&](const char* what) {
    auto& words = words_of[what];
    return std::any_of(words.begin(), words.end(), [&](auto& word) { return name.find(word) != std::string::npos; });
  };
  found = std::make_unique<Operator>(Operator{handle, is("plain"), is("mixes"), is("now"), is("learns"), {}, {}});
  for (auto& argument : schema.arguments()) {
    auto type = argument.type();
    if (type->kind() == c10::TypeKind::OptionalType) type = type->castRaw<c10::OptionalType>()->getElementType();
    if (type->kind() == c10::TypeKind::GeneratorType) found->generator = found->kinds.size();
    found->kinds.push_back(type->kind());
  }
  for (auto& result : schema.returns()) {
    auto kind = result.type()->kind();
    if (kind != c10::TypeKind::TensorType && kind != c10::TypeKind::ListType) found->always_now = true;
    int argument = -1;
    if (auto* alias = result.alias_info(); alias && alias->isWrite()) {
      for (size_t i = 0; i < schema.arguments().size(); i++) {
        auto* of = schema.arguments()[i].alias_info();
        if (of && of->isWrite() && of->beforeSets() == alias->beforeSets()) argument = i;
      }
    }
    found->written.push_back(argument);
  }
  return *found;
}

static void put_layout(Bytes& to, const Layout& layout) {
  put<uint8_t>(to, static_cast<uint8_t>(layout.type));
  put<uint8_t>(to, layout.flags);
  put<uint8_t>(to, layout.sizes.size());
  put_numbers(to, layout.sizes);
  put_numbers(to, layout.strides);
  put<int64_t>(to, layout.offset);
}

static void define(Entry& entry, const Operator& op, const Bytes& key) {
  if (entry.generation == client().generation()) return;
  entry.generation = client().generation();
  auto& queue = client().queue();
  auto begin = queue.size();
  put<uint8_t>(queue, kDefine);
  put(queue, entry.id);
  put_text(queue, op.handle.schema().name());
  put_text(queue, op.handle.schema().overload_name());
  put_text(queue, key);
  put<uint8_t>(queue, entry.immediate);
  put<uint32_t>(queue, entry.results.size());
  for (auto& result : entry.results) {
    put<uint8_t>(queue, result.kind);
    if (result.kind != kNew) continue;
    put_layout(queue, result.layout);
    put(queue, result.bytes);
  }
  if (client().keeps_journal()) client().defined(entry.id, queue.substr(begin));
}

// The server needs its template no more.
static void drop(const Entry& entry) {
  put<uint8_t>(client().past_capture(), kDrop);
  put(client().past_capture(), entry.id);
  client().dropped(entry.id);
}

// Forgets the half of all entries that was not used for longest, here and at the server.
static void make_room() {
  if (entries < kMostEntries) return;
  std::vector<uint64_t> used;
  for (auto& [_, op] : operators) for (auto& [key, entry] : op->cache) used.push_back(entry->used_at);
  std::nth_element(used.begin(), used.begin() + used.size() / 2, used.end());
  auto oldest_kept = used[used.size() / 2];
  for (auto& [_, op] : operators) {
    for (auto at = op->cache.begin(); at != op->cache.end();) {
      if (at->second->used_at >= oldest_kept) { ++at; continue; }
      drop(*at->second);
      at = op->cache.erase(at);
      entries--;
    }
  }
  client().queued();
}

static void adopt(c10::TensorImpl* tensor, const Layout& layout, uint64_t bytes) {
  tensor->set_sizes_and_strides(layout.sizes, layout.strides);
  auto* storage = tensor->storage().unsafeGetStorageImpl();
  if (storage->nbytes() < bytes) {
    storage->set_nbytes(bytes);
    client().grown(handle_of(storage), bytes);
  }
}

static Tensor with_flags(Tensor tensor, uint8_t flags) {
  if (flags & kConjugate) tensor._set_conj(true);
  if (flags & kNegative) tensor._set_neg(true);
  return tensor;
}

static Tensor tensor_of(const c10::Storage& storage, const Layout& layout) {
  return with_flags(make_tensor(storage, kKeys, layout.type, layout.sizes, layout.strides, layout.offset), layout.flags);
}

static void issue(Entry& entry, Command command, Slots& slots, uint32_t names) {
  auto& queue = client().queue();
  put<uint8_t>(queue, command);
  put(queue, entry.id);
  put<uint32_t>(queue, slots.tensors.size());
  put<uint32_t>(queue, slots.changing.size());
  put<uint32_t>(queue, names);
  for (auto* tensor : slots.tensors) put(queue, name_of(tensor->storage().unsafeGetStorageImpl()));
  queue += slots.changing;
  client().issued(slots.tensors);
}

// Makes of a call that ran at once an entry for those to come, with a template of its own.
static Entry learned(const Operator& op, std::vector<Expected> results, std::vector<Returned> returns) {
  Entry entry;
  entry.id = client().next_template();
  entry.send = true;
  for (auto& result : results) {
    if (result.kind != kNew) continue;
    entry.bytes += result.bytes;
    entry.fresh++;
  }
  entry.results = std::move(results);
  entry.returns = std::move(returns);
  for (size_t i = 0; i < entry.returns.size(); i++) {
    if (op.written[i] >= 0) entry.returns[i] = {Returned::kArgument, uint32_t(op.written[i]), 0};
  }
  return entry;
}

static void run_now(Operator& op, Entry& entry, Slots& slots, torch::jit::Stack* stack) {
  client().ready();
  client().statistics.immediate++;
  issue(entry, kExecuteNow, slots, 1);
  put(client().queue(), client().next_storage(kMostElements));
  auto reply = client().ask();
  auto said = reply;
  auto executed = read_executed(reply);
  client().executed(said);
  for (auto& changed : executed.changed) adopt(slots.tensors[changed.slot], changed.layout, changed.bytes);
  struct Fresh {
    c10::Storage storage;
    uint32_t first;
  };
  std::unordered_map<uint64_t, Fresh> fresh;
  std::vector<Expected> expected;
  std::vector<Returned> returns;
  auto tensor = [&](const Executed::Result& result) -> Tensor {
    expected.push_back({result.kind, 0, result.layout, result.bytes});
    if (result.kind == kUndefined) return Tensor();
    if (result.kind == kOfArgument) {
      expected.back().of = result.of;
      return tensor_of(slots.tensors[result.of]->storage(), result.layout);
    }
    auto [found, is_new] = fresh.try_emplace(result.of);
    if (is_new) found->second = {client().storage(result.of, result.bytes), uint32_t(expected.size() - 1)};
    else expected.back().kind = kOfResult, expected.back().of = found->second.first;
    return tensor_of(found->second.storage, result.layout);
  };
  auto base = stack->size() - op.kinds.size();
  std::vector<IValue> results;
  for (auto& returned : executed.returned) {
    auto& tensors = returned.tensors;
    IValue result = returned.number;
    if (returned.tag == 'T') {
      returns.push_back({Returned::kTensor, uint32_t(expected.size()), 1});
      result = tensor(tensors[0]);
    } else if (returned.tag == 'M') {
      returns.push_back({Returned::kList, uint32_t(expected.size()), uint32_t(tensors.size())});
      c10::List<Tensor> list;
      for (auto& one : tensors) list.push_back(tensor(one));
      result = list;
    }
    int written = op.written[results.size()];
    results.push_back(written >= 0 ? (*stack)[base + written] : result);
  }
  stack->resize(base);
  for (auto& result : results) stack->push_back(std::move(result));
  bool whole = executed.changed.empty() && returns.size() == executed.returned.size();
  if (!op.learns || !whole) return;
  drop(entry);
  entry = learned(op, std::move(expected), std::move(returns));
}

static void run_ahead(Operator& op, Entry& entry, Slots& slots, torch::jit::Stack* stack) {
  if (entry.bytes) client().ask_for(entry.bytes);
  if (entry.send) issue(entry, kExecute, slots, entry.fresh);
  else client().statistics.views++;
  c10::SmallVector<Tensor, 4> results;
  for (auto& expected : entry.results) {
    switch (expected.kind) {
      case kUndefined: results.emplace_back(); break;
      case kNew: {
        auto id = client().next_storage();
        put(client().queue(), id);
        results.push_back(tensor_of(client().storage(id, expected.bytes), expected.layout));
        break;
      }
      case kOfArgument: results.push_back(tensor_of(slots.tensors[expected.of]->storage(), expected.layout)); break;
      case kOfResult: results.push_back(tensor_of(results[expected.of].storage(), expected.layout)); break;
    }
  }
  for (auto& resized : entry.resized) {
    auto* tensor = slots.tensors[resized.slot];
    tensor->set_sizes_and_strides(resized.layout.sizes, resized.layout.strides);
  }
  if (entry.send) client().queued();
  auto base = stack->size() - op.kinds.size();
  c10::SmallVector<IValue, 4> returned;
  for (auto& what : entry.returns) {
    if (what.kind == Returned::kArgument) {
      returned.push_back((*stack)[base + what.first]);
    } else if (what.kind == Returned::kTensor) {
      returned.emplace_back(std::move(results[what.first]));
    } else {
      c10::List<Tensor> list;
      for (uint32_t i = 0; i < what.count; i++) list.push_back(results[what.first + i]);
      returned.emplace_back(std::move(list));
    }
  }
  stack->resize(base);
  for (auto& value : returned) stack->push_back(std::move(value));
}

// Refuses to record a call whose results have shapes that only its execution tells.
static void refuse_unknown(const Operator& op, std::string_view why) {
  why = why.substr(0, why.find('\n'));
  // What inference says of operators whose shapes depend on data is meant for those who write such operators.
  if (why.find("data-independent") != std::string_view::npos) why = "it depends on data";
  client().not_in_graph(c10::str("what ", op.handle.schema().name(), " gives is not known ahead: ", why));
}

// What is written must be on the card: of a number that travels with the call, or an index that is brought there, nothing comes back.
static void check_written(const Operator& op, const torch::jit::Stack& stack, size_t base) {
  auto check = [](const Tensor& written) {
    TORCH_CHECK(!written.defined() || !written.is_cpu(), "Expected all tensors to be on the same device, but found at least two devices, ",
                kDevice, " and cpu: what is on the processor cannot be written by what is computed on the card");
  };
  auto& arguments = op.handle.schema().arguments();
  for (size_t i = 0; i < arguments.size(); i++) {
    auto* alias = arguments[i].alias_info();
    auto& value = stack[base + i];
    if (!alias || !alias->isWrite()) continue;
    if (value.isTensor()) check(value.toTensor());
    else if (value.isTensorList()) for (const Tensor& written : value.toTensorVector()) check(written);
  }
}

void dispatch(const c10::OperatorHandle& handle, torch::jit::Stack* stack) {
  Client::Use lock(client());
  auto& op = operator_of(handle);
  auto count = op.kinds.size(), base = stack->size() - count;
  if (op.generator >= 0 && !(*stack)[base + op.generator].isNone()) {
    auto generator = std::exchange((*stack)[base + op.generator], IValue()).toGenerator();
    Drawing drawing(generator);
    return dispatch(handle, stack);
  }
  Slots slots;
  // Nested calls (an upload of an index) must not write to the key of the outer one.
  static thread_local Bytes pooled;
  Bytes key = std::exchange(pooled, {});
  key.clear();
  for (size_t i = 0; i < count; i++) encode(key, slots, (*stack)[base + i], op.kinds[i] == c10::TypeKind::NumberType, op);
  auto found = op.cache.find(std::string_view(key));
  // What was brought to the card looks like a tensor of it.
  if (found == op.cache.end() || !slots.uploaded.empty()) check_written(op, *stack, base);
  if (found == op.cache.end()) {
    make_room();
    client().statistics.templates++;
    auto entry = std::make_unique<Entry>();
    entry->id = client().next_template();
    entry->immediate = op.always_now || op.learns;
    if (!entry->immediate) {
      try {
        infer(op, *entry, key, slots);
      } catch (const std::exception& error) {
        if (client().capturing()) refuse_unknown(op, error.what());
        *entry = Entry{entry->id};
        entry->immediate = true;
      }
    }
    found = op.cache.emplace(key, std::move(entry)).first;
    entries++;
  }
  auto& entry = *found->second;
  entry.used_at = client().statistics.operations;
  // What resizes an argument (out=) must have its storage grown first, and is rare: the server tells what came of it.
  if (!entry.resized.empty()) {
    entry.immediate = true;
    entry.results.clear();
    entry.resized.clear();
    entry.bytes = 0;
  }
  if (entry.immediate && client().capturing()) {
    refuse_unknown(op, op.learns ? "it is once it has run with these shapes; run the step before you record it"
                                 : "it depends on data, or changes the shape of an argument");
  }
  if (entry.send || entry.immediate) define(entry, op, key);
  if (!entry.immediate) {
    run_ahead(op, entry, slots, stack);
  } else {
    try {
      run_now(op, entry, slots, stack);
    } catch (...) {
      // A wrong call is not worth a place.
      drop(entry);
      op.cache.erase(found);
      entries--;
      throw;
    }
  }
  pooled = std::move(key);
}

}  // namespace tessera
