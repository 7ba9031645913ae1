// The dispatcher: every operator comes here, boxed, and leaves as a few dozen bytes.
//
// What an operator gives back is inferred with meta tensors that share storages exactly as the real ones do, once for each key; from
// then on a call costs a look-up. Results that are views of arguments send nothing at all. Where inference fails, because shapes
// depend on data or the call is wrong, the operator runs at once and the server says what came of it, with PyTorch's own words.
#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/SmallVector.h>

#include "client.h"

namespace tessera {

constexpr size_t kMostEntries = 1 << 15;  // of all caches together

struct Slots {
  c10::SmallVector<c10::TensorImpl*, 16> tensors;
  std::vector<Tensor> uploaded;
  Bytes changing;
};

struct Expected {
  Result kind;
  uint32_t of = 0;
  Layout layout;
  uint64_t bytes = 0;
};

struct Returned {
  enum { kTensor, kList, kArgument } kind;
  uint32_t first, count;
};

struct Resized {
  size_t slot;
  Layout layout;
};

struct Entry {
  uint32_t id = 0, generation = 0;
  bool send = true, immediate = false;
  uint64_t used_at = 0, bytes = 0;
  uint32_t fresh = 0;
  std::vector<Expected> results;
  std::vector<Returned> returns;
  std::vector<Resized> resized;
};

struct Hash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
};

struct Operator {
  c10::OperatorHandle handle;
  bool plain;          // numbers decide shapes: they belong to the key
  bool mixes;          // takes indices on the processor
  bool always_now;     // results that inference cannot know
  bool learns;         // what it gives depends on the device: the first call with a key tells
  std::vector<c10::TypeKind> kinds;
  std::vector<int> written;  // for each return, the argument that it is
  std::unordered_map<Bytes, std::unique_ptr<Entry>, Hash, std::equal_to<>> cache;
};

static std::unordered_map<const void*, std::unique_ptr<Operator>> operators;
static size_t entries = 0;

static Operator& operator_of(const c10::OperatorHandle& handle) {
  auto& found = operators[&handle.schema()];
  if (found) return *found;
  auto& schema = handle.schema();
  auto& name = schema.name();
  auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
  found = std::make_unique<Operator>(Operator{handle, has("range") || has("space"), has("index"), has("_embedding_bag"),
                                                has("batch_norm") || has("layer_norm") || has("group_norm"), {}, {}, {}});
  for (auto& argument : schema.arguments()) {
    auto type = argument.type();
    if (type->kind() == c10::TypeKind::OptionalType) type = type->castRaw<c10::OptionalType>()->getElementType();
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

static void encode_tensor(Bytes& key, Slots& slots, const Tensor& tensor, const Operator& op) {
  if (!tensor.defined()) return put<char>(key, 'U');
  auto* inside = tensor.unsafeGetTensorImpl();
  if (!inside->device().is_privateuseone()) {
    TORCH_CHECK(inside->device().is_cpu(), "expected tensors of one device, found ", kDevice, " and ", tensor.device());
    if (tensor.dim() == 0 && tensor.layout() == at::kStrided) {
      key += 'S';
      put<uint8_t>(key, static_cast<uint8_t>(tensor.scalar_type()));
      put<uint8_t>(key, inside->is_wrapped_number());
      char number[kScalar] = {};
      Tensor plain = tensor.resolve_conj().resolve_neg();
      std::memcpy(number, plain.const_data_ptr(), plain.element_size());
      slots.changing.append(number, kScalar);
      return;
    }
    TORCH_CHECK(op.mixes, "Expected all tensors to be on the same device, but found at least two devices, ", kDevice, " and cpu!");
    slots.uploaded.push_back(upload(tensor));
    inside = slots.uploaded.back().unsafeGetTensorImpl();
  }
  TORCH_CHECK_NOT_IMPLEMENTED(inside->layout() == at::kStrided, "sparse tensors are not supported on a virtual card");
  key += 'T';
  put<uint8_t>(key, static_cast<uint8_t>(c10::typeMetaToScalarType(inside->dtype())));
  put<uint8_t>(key, (inside->is_wrapped_number() ? kWrappedNumber : 0) | (inside->is_conj() ? kConjugate : 0) |
                        (inside->is_neg() ? kNegative : 0));
  put<uint8_t>(key, inside->dim());
  put_numbers(key, inside->sizes());
  put_numbers(key, inside->strides());
  put<int64_t>(key, inside->storage_offset());
  slots.tensors.push_back(inside);
}

static void encode(Bytes& key, Slots& slots, const IValue& value, bool scalar, const Operator& op) {
  if (value.isTensor()) return encode_tensor(key, slots, value.toTensor(), op);
  if (value.isNone()) return put<char>(key, 'N');
  if (value.isInt()) {
    key += scalar && !op.plain ? 'I' : 'i';
    return put(scalar && !op.plain ? slots.changing : key, value.toInt());
  }
  if (value.isDouble()) {
    key += op.plain ? 'd' : 'D';
    return put(op.plain ? key : slots.changing, value.toDouble());
  }
  if (value.isBool()) {
    key += 'b';
    return put<uint8_t>(key, value.toBool());
  }
  if (value.isIntList()) {
    auto list = value.toIntVector();
    key += 'L';
    put<uint32_t>(key, list.size());
    return put_numbers(key, list);
  }
  if (value.isTensorList()) {
    auto list = value.toTensorList();
    key += 'M';
    put<uint32_t>(key, list.size());
    for (size_t i = 0; i < list.size(); i++) encode_tensor(key, slots, list.get(i), op);
    return;
  }
  if (value.isDevice()) return put<char>(key, 'V');
  if (value.isString()) {
    key += 's';
    return put_text(key, value.toStringRef());
  }
  if (value.isComplexDouble()) {
    key += 'c';
    put(key, value.toComplexDouble().real());
    return put(key, value.toComplexDouble().imag());
  }
  if (value.isDoubleList()) {
    auto list = value.toDoubleVector();
    key += 'l';
    put<uint32_t>(key, list.size());
    key.append(reinterpret_cast<const char*>(list.data()), 8 * list.size());
    return;
  }
  if (value.isBoolList()) {
    auto list = value.toBoolList();
    key += 'k';
    put<uint32_t>(key, list.size());
    for (bool element : list) put<uint8_t>(key, element);
    return;
  }
  if (value.isSymInt()) {
    key += 'i';
    return put<int64_t>(key, value.toSymInt().guard_int(__FILE__, __LINE__));
  }
  TORCH_CHECK_NOT_IMPLEMENTED(!value.isGenerator(), "generators of one's own are not supported on a virtual card; seed it with ",
                              "torch.manual_seed");
  TORCH_CHECK_NOT_IMPLEMENTED(value.isList(), "an argument of kind ", value.tagKind(), " is not supported on a virtual card");
  auto kind = value.toList().elementType()->kind();
  auto list = value.toListRef();
  TORCH_CHECK_NOT_IMPLEMENTED(kind == c10::TypeKind::OptionalType || list.empty() || list[0].isScalar(),
                              "a list of ", value.toList().elementType()->str(), " is not supported on a virtual card");
  key += kind == c10::TypeKind::OptionalType ? 'O' : 'P';
  put<uint32_t>(key, list.size());
  for (auto& element : list) encode(key, slots, element, true, op);
}

// Works out what the call gives back. Throws what the meta kernel throws.
static void infer(Operator& op, Entry& entry, const Bytes& key, Slots& slots) {
  std::unordered_map<const c10::StorageImpl*, c10::Storage> storages;
  std::vector<Tensor> metas;
  size_t next = 0;
  auto make = [&](const Layout& layout) {
    auto* real = slots.tensors[next++]->storage().unsafeGetStorageImpl();
    auto& storage = storages.try_emplace(real).first->second;
    if (!storage) {
      auto nothing = c10::DataPtr(nullptr, c10::Device(c10::kMeta));
      storage = c10::Storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), real->nbytes(), std::move(nothing),
                                                                   c10::GetAllocator(c10::kMeta), true));
    }
    metas.push_back(make_tensor(storage, c10::DispatchKeySet(c10::DispatchKey::Meta), layout.type, layout.sizes, layout.strides, layout.offset));
    return metas.back();
  };
  torch::jit::Stack stack;
  at::AutoDispatchBelowADInplaceOrView below;
  Reader from(key), changing(slots.changing);
  Decoder decoder(from, changing, c10::Device(c10::kMeta), make);
  auto& schema = op.handle.schema();
  for (size_t i = 0; i < schema.arguments().size(); i++) stack.push_back(decoder.value());
  std::vector<Layout> before;
  for (auto& meta : metas) before.push_back({meta.scalar_type(), 0, meta.sizes().vec(), meta.strides().vec(), meta.storage_offset()});
  op.handle.callBoxed(&stack);

  entry.send = schema.is_mutable();
  for (size_t i = 0; i < metas.size(); i++) {
    if (metas[i].sizes() == c10::IntArrayRef(before[i].sizes) && metas[i].strides() == c10::IntArrayRef(before[i].strides)) continue;
    entry.resized.push_back({i, {metas[i].scalar_type(), 0, metas[i].sizes().vec(), metas[i].strides().vec(), metas[i].storage_offset()}});
  }
  std::vector<std::pair<const c10::StorageImpl*, uint32_t>> fresh;
  auto expect = [&](const Tensor& result) {
    if (!result.defined()) {
      entry.send = true;
      entry.results.push_back({kUndefined});
      return;
    }
    TORCH_CHECK(result.layout() == at::kStrided && !result.is_quantized(), "not a plain tensor");
    auto* storage = result.storage().unsafeGetStorageImpl();
    uint8_t flags = (result.is_conj() ? kConjugate : 0) | (result.is_neg() ? kNegative : 0);
    Expected expected{kNew, 0, {result.scalar_type(), flags, result.sizes().vec(), result.strides().vec(), result.storage_offset()}, storage->nbytes()};
    for (size_t i = 0; i < metas.size() && expected.kind == kNew; i++) {
      if (metas[i].storage().unsafeGetStorageImpl() == storage) expected.kind = kOfArgument, expected.of = i;
    }
    for (size_t i = 0; i < fresh.size() && expected.kind == kNew; i++) {
      if (fresh[i].first == storage) expected.kind = kOfResult, expected.of = fresh[i].second;
    }
    if (expected.kind == kNew) {
      fresh.emplace_back(storage, entry.results.size());
      entry.bytes += expected.bytes;
      entry.fresh++;
      entry.send = true;
    }
    entry.results.push_back(std::move(expected));
  };
  for (size_t i = 0; i < stack.size(); i++) {
    uint32_t first = entry.results.size();
    if (op.written[i] >= 0) {
      entry.returns.push_back({Returned::kArgument, uint32_t(op.written[i]), 0});
    } else if (stack[i].isTensor()) {
      expect(stack[i].toTensor());
      entry.returns.push_back({Returned::kTensor, first, 1});
    } else {
      for (const Tensor& result : stack[i].toTensorVector()) expect(result);
      entry.returns.push_back({Returned::kList, first, uint32_t(entry.results.size() - first)});
    }
  }
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
      put<uint8_t>(client().queue(), kDrop);
      put(client().queue(), at->second->id);
      at = op->cache.erase(at);
      entries--;
    }
  }
  client().queued();
}

static Layout read_result(Reader& from) {
  Layout layout;
  read_layout(from, layout);
  return layout;
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
  client().statistics.operations++;
  client().note_line();
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
  client().statistics.immediate++;
  issue(entry, kExecuteNow, slots, 1);
  put(client().queue(), client().next_storage(kMostElements));
  auto reply = client().ask();
  auto changed = reply.get<uint32_t>();
  for (uint32_t i = 0; i < changed; i++) {
    auto slot = reply.get<uint32_t>();
    auto layout = read_result(reply);
    adopt(slots.tensors[slot], layout, reply.get<uint64_t>());
  }
  struct Fresh {
    c10::Storage storage;
    uint32_t first;
  };
  std::unordered_map<uint64_t, Fresh> fresh;
  std::vector<Expected> expected;
  std::vector<Returned> returns;
  auto tensor = [&]() -> Tensor {
    auto kind = static_cast<Result>(reply.get<uint8_t>());
    expected.push_back({kind});
    if (kind == kUndefined) return Tensor();
    auto& layout = expected.back().layout = read_result(reply);
    if (kind == kOfArgument) {
      expected.back().of = reply.get<uint32_t>();
      return tensor_of(slots.tensors[expected.back().of]->storage(), layout);
    }
    auto id = reply.get<uint64_t>(), bytes = reply.get<uint64_t>();
    expected.back().bytes = bytes;
    auto [found, is_new] = fresh.try_emplace(id);
    if (is_new) found->second = {client().storage(id, bytes), uint32_t(expected.size() - 1)};
    else expected.back().kind = kOfResult, expected.back().of = found->second.first;
    return tensor_of(found->second.storage, layout);
  };
  auto base = stack->size() - op.kinds.size();
  std::vector<IValue> results;
  auto count = reply.get<uint32_t>();
  for (uint32_t i = 0; i < count; i++) {
    switch (reply.get<char>()) {
      case 'T': {
        returns.push_back({Returned::kTensor, uint32_t(expected.size()), 1});
        auto result = tensor();
        results.push_back(op.written[i] >= 0 ? (*stack)[base + op.written[i]] : IValue(result));
        break;
      }
      case 'M': {
        c10::List<Tensor> list;
        auto length = reply.get<uint32_t>();
        returns.push_back({Returned::kList, uint32_t(expected.size()), length});
        for (uint32_t j = 0; j < length; j++) list.push_back(tensor());
        results.push_back(op.written[i] >= 0 ? (*stack)[base + op.written[i]] : IValue(list));
        break;
      }
      case 'i': results.push_back(reply.get<int64_t>()); break;
      case 'b': results.push_back(reply.get<uint8_t>() != 0); break;
      case 'd': results.push_back(reply.get<double>()); break;
      default: { auto real = reply.get<double>(); results.push_back(c10::complex<double>(real, reply.get<double>())); }
    }
  }
  stack->resize(base);
  for (auto& result : results) stack->push_back(std::move(result));
  if (op.learns && changed == 0 && returns.size() == count) entry = learned(op, std::move(expected), std::move(returns));
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

void dispatch(const c10::OperatorHandle& handle, torch::jit::Stack* stack) {
  Client::Use lock(client());
  auto& op = operator_of(handle);
  auto count = op.kinds.size(), base = stack->size() - count;
  Slots slots;
  // Nested calls (an upload of an index) must not write to the key of the outer one.
  static thread_local Bytes pooled;
  Bytes key = std::exchange(pooled, {});
  key.clear();
  for (size_t i = 0; i < count; i++) encode(key, slots, (*stack)[base + i], op.kinds[i] == c10::TypeKind::NumberType, op);
  auto found = op.cache.find(std::string_view(key));
  if (found == op.cache.end()) {
    make_room();
    client().statistics.templates++;
    auto entry = std::make_unique<Entry>();
    entry->id = client().next_template();
    entry->immediate = op.always_now || op.learns;
    if (!entry->immediate) {
      try {
        infer(op, *entry, key, slots);
      } catch (const std::exception&) {
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
  if (entry.send || entry.immediate) define(entry, op, key);
  if (!entry.immediate) {
    run_ahead(op, entry, slots, stack);
  } else {
    try {
      run_now(op, entry, slots, stack);
    } catch (...) {
      // A wrong call is not worth a place.
      put<uint8_t>(client().queue(), kDrop);
      put(client().queue(), entry.id);
      op.cache.erase(found);
      entries--;
      throw;
    }
  }
  pooled = std::move(key);
}

}  // namespace tessera
