// One operator on the device of the slice: its arguments are made from its template, its results are compared with what the program
// expects of them.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros.h>

#include "server/attention.h"
#include "server/group.h"

namespace tessera {

static void check_operator(const c10::FunctionSchema& schema) {
  TORCH_CHECK(schema.getNamespace() == "aten", "only operators of PyTorch itself run on a slice, not ", schema.name());
  // Reads files of the server's host.
  TORCH_CHECK(schema.name() != "aten::from_file", schema.name(), " does not run on a slice");
}

// The dispatcher trusts that arguments are of the kinds of the schema, and so must whoever calls it.
static void check_argument(const std::string& name, const c10::Argument& argument, const IValue& value) {
  auto wanted = argument.type();
  if (wanted->kind() == c10::TypeKind::OptionalType) {
    if (value.isNone()) return;
    wanted = wanted->castRaw<c10::OptionalType>()->getElementType();
  }
  bool fits;
  if (value.isTensor()) fits = wanted->kind() == c10::TypeKind::TensorType;
  else if (wanted->kind() == c10::TypeKind::NumberType) fits = value.isScalar();
  else fits = value.type()->isSubtypeOf(*wanted);
  TORCH_CHECK(fits, name, " takes ", argument.type()->str(), " for ", argument.name(), ", not ", value.tagKind());
}

Executor::Defined Executor::read_definition(Reader& frame) const {
  Defined made;
  made.id = frame.get<uint32_t>();
  made.name = frame.text(), made.overload = frame.text(), made.key = frame.text();
  made.now = frame.get<uint8_t>() != 0;
  made.outcomes.resize(frame.count());
  for (auto& outcome : made.outcomes) {
    outcome.kind = static_cast<Result>(frame.get<uint8_t>());
    if (outcome.kind != kNew) continue;
    read_layout(frame, outcome.layout);
    outcome.bytes = frame.get<uint64_t>();
    TORCH_CHECK(reach(outcome.layout) <= outcome.bytes, "a result is outside its storage");
    TORCH_CHECK(!__builtin_add_overflow(made.bytes, outcome.bytes, &made.bytes), "results that are too large");
  }
  return made;
}

std::unique_ptr<Executor::Template> Executor::check_definition(Defined&& from) const {
  auto op = c10::Dispatcher::singleton().findSchema({from.name, from.overload});
  TORCH_CHECK_NOT_IMPLEMENTED(op.has_value(), "the server's PyTorch has no operator ", from.name, ".", from.overload);
  auto& schema = op->schema();
  check_operator(schema);
  auto made = std::make_unique<Template>(Template{*op, std::move(from.key), from.now, 0, 0, from.bytes, std::move(from.outcomes), nullptr});
  // Decoded once with empty tensors, so that no later call finds arguments of other kinds than the operator takes.
  std::vector<char> nothing(kScalar * (made->key.size() + 1));
  Reader key(made->key), changing(nothing.data(), nothing.size());
  auto make = [&](const Layout& layout) {
    made->slots++;
    reach(layout);
    return at::empty({0}, at::TensorOptions(layout.type));
  };
  Decoder decoder(key, changing, device_, make);
  for (auto& argument : schema.arguments()) check_argument(from.name, argument, decoder.value());
  TORCH_CHECK(key.done(), "more arguments than ", from.name, " takes");
  made->changing = nothing.size() - changing.left();
  return made;
}

void Executor::define(Reader& frame) {
  auto definition = read_definition(frame);
  auto id = definition.id;
  auto name = definition.name;
  try {
    TORCH_CHECK(templates_.size() < kMostTemplates, "more than ", kMostTemplates, " templates");
    templates_[id] = check_definition(std::move(definition));
  } catch (...) {
    // Of the operation for which it is defined, which is the next one.
    operations++;
    note_for_all(name);
    operations--;
    templates_.erase(id);
  }
}

Executor::Issued Executor::read_issued(Reader& frame) {
  auto id = frame.get<uint32_t>();
  size_t slots = frame.get<uint32_t>(), changing = frame.get<uint32_t>(), results = frame.get<uint32_t>();
  Reader storages(frame.take(8 * slots), 8 * slots), numbers(frame.take(changing), changing);
  return {id, slots, changing, results, storages, numbers, Reader(frame.take(8 * results), 8 * results)};
}

void Executor::check_issued(const Issued& issued, const Template& of, bool now) {
  TORCH_CHECK(of.slots == issued.slots && of.changing == issued.changing && of.now == now, "it does not match its template");
}

void Executor::execute(Reader& frame, bool now, const Transport* transport) {
  auto issued = read_issued(frame);
  operations++;
  auto found = templates_.find(issued.id);
  Bytes answer;
  try {
    TORCH_CHECK(found != templates_.end(), "its template is unknown because of an earlier error");
    if (!failure_ || group_) {
      check_issued(issued, *found->second, now);
      answer = operate(*found->second, issued);
    }
  } catch (const Lost&) {
    throw;
  } catch (...) {
    note_for_all(found == templates_.end() ? kWaiting : std::string_view(found->second->op.schema().name()));
  }
  if (now) reply(transport, answer);
}

Bytes Executor::operate(const Template& of, const Issued& issued) {
  if (!group_) return operate_alone(of, issued, nullptr);
  Bytes answer;
  together([&] {
    if (of.now) answer = group_->operate_now(of, issued);
    else group_->operate(of, issued);
  });
  return answer;
}

// Runs one operation and keeps what it gives, or says what that is; what goes wrong is noted. `made` is told names and sizes of storages
// that only its execution tells.
Bytes Executor::operate_alone(const Template& of, Issued issued, Bytes* made) {
  Call call{of};
  Bytes answer;
  try {
    if (!group_) announce();
    Reader key(of.key);
    std::vector<uint64_t> ids;
    auto make = [&](const Layout& layout) {
      auto storage = issued.storages.get<uint64_t>();
      call.inputs.push_back(tensor(storage, layout));
      call.held.push_back(&storages_.find(storage)->second);
      ids.push_back(storage);
      return call.inputs.back();
    };
    Decoder decoder(key, issued.numbers, device_, make);
    for (size_t i = 0; i < of.op.schema().arguments().size(); i++) call.stack.push_back(decoder.value());
    compute(call);
    if (of.now) answer = describe_results(call, issued.names.get<uint64_t>(), made);
    else keep_results(call, issued.names);
    for (size_t i = 0; made && i < ids.size(); i++) {
      if (call.held[i]->storage.nbytes() != call.held[i]->bytes) put(*made, ids[i]), put<uint64_t>(*made, call.held[i]->storage.nbytes());
    }
  } catch (...) {
    note_exception(of.op.schema().name());
  }
  recount(call);
  if (used > limit) note(kMemory, of.op.schema().name(), "its results are over the memory of the slice");
  return answer;
}

void Executor::compute(Call& call) {
  ask_for(call.of.new_bytes);
  if (call.of.now) {
    for (auto& input : call.inputs) call.before.push_back({input.scalar_type(), 0, input.sizes().vec(), input.strides().vec(), 0});
  }
  this->call(call);
}

void Executor::call(Call& call) {
  if (gated_) enter();
  // What was waited for since the last one that is paid, such as a turn or the program, is no work of the device.
  if (unpaid_ == 0 && !device_.is_cpu()) paid_wall_ = clock_of(CLOCK_MONOTONIC);
  unpaid_++;  // also when it fails: it may have begun
  at::AutoDispatchBelowADInplaceOrView below;
  if (lacks_sums(call.of.op, call.stack)) call.of.op.callBoxedForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd, call.stack);
  else call.of.op.callBoxed(&call.stack);
  if (gated_) pay(false);
}

static void check_kind(const Tensor& tensor) {
  TORCH_CHECK_NOT_IMPLEMENTED(!tensor.defined() || (tensor.layout() == at::kStrided && !tensor.is_quantized()),
                              "sparse and quantised tensors are not supported on a virtual card");
}

static bool shares(const Tensor& tensor, const std::vector<Tensor>& others) {
  auto* storage = tensor.storage().unsafeGetStorageImpl();
  return std::any_of(others.begin(), others.end(), [&](auto& o) { return o.storage().unsafeGetStorageImpl() == storage; });
}

// Results that are no written arguments, flat.
static std::vector<Tensor> results_of(const c10::FunctionSchema& schema, const torch::jit::Stack& stack) {
  std::vector<Tensor> flat;
  for (size_t i = 0; i < stack.size(); i++) {
    auto* alias = schema.returns()[i].alias_info();
    if (alias && alias->isWrite()) continue;
    if (stack[i].isTensor()) flat.push_back(stack[i].toTensor());
    else if (stack[i].isTensorList()) for (const Tensor& tensor : stack[i].toTensorVector()) flat.push_back(tensor);
  }
  return flat;
}

// What a processor keeps for the way back of this operator, other devices do without. A card may be of both, or move.
static void complete(const c10::FunctionSchema& schema, const std::vector<Tensor>& inputs, std::vector<Tensor>& results) {
  if (schema.name() != "aten::log_sigmoid_forward" || results.size() != 2 || results[1].sizes() == results[0].sizes()) return;
  results[1] = at::abs(inputs[0]).neg_().exp_();
}

void Executor::keep_results(Call& call, Reader names) {
  auto& schema = call.of.op.schema();
  auto results = results_of(schema, call.stack);
  TORCH_CHECK(results.size() == call.outcomes->size(), "it has ", results.size(), " results");
  complete(schema, call.inputs, results);
  std::vector<Tensor> earlier = call.inputs;
  for (size_t i = 0; i < results.size(); i++) {
    auto& expected = (*call.outcomes)[i];
    if (expected.kind != kNew) continue;
    auto id = names.get<uint64_t>();
    auto& result = results[i];
    check_kind(result);
    if (!result.defined()) {
      // A gradient that was not asked for, which inference gives a shape all the same.
      auto zeros = allocate(expected.bytes);
      keep(id, zeros.zero_().storage());
      continue;
    }
    TORCH_CHECK(result.sizes() == c10::IntArrayRef(expected.layout.sizes) && result.scalar_type() == expected.layout.type,
                "its result is ", result.sizes(), " of ", result.scalar_type(), ", the program expects ", expected.layout.sizes, " of ",
                expected.layout.type);
    bool as_expected = result.strides() == c10::IntArrayRef(expected.layout.strides) && !result.is_conj() && !result.is_neg() &&
                       result.storage_offset() == expected.layout.offset && result.storage().nbytes() == expected.bytes &&
                       result.device() == device_ && !shares(result, earlier);
    if (!as_expected) {
      auto& want = expected.layout;
      auto key = c10::computeDispatchKey(want.type, c10::kStrided, device_);
      auto copy = make_tensor(allocate(expected.bytes).storage(), c10::DispatchKeySet(key), want.type, want.sizes, want.strides, want.offset);
      result = copy.copy_(result);
    }
    earlier.push_back(result);
    keep(id, result.storage());
  }
}

static void put_layout(Bytes& to, const Tensor& of) {
  put<uint8_t>(to, static_cast<uint8_t>(of.scalar_type()));
  put<uint8_t>(to, (of.is_conj() ? kConjugate : 0) | (of.is_neg() ? kNegative : 0));
  put<uint8_t>(to, of.dim());
  put_numbers(to, of.sizes());
  put_numbers(to, of.strides());
  put<int64_t>(to, of.storage_offset());
}

// For operators whose results the program cannot foresee: what they are, and which arguments have changed their shape.
Bytes Executor::describe_results(Call& call, uint64_t next, Bytes* made) {
  Bytes body;
  std::vector<uint32_t> changed;
  for (size_t i = 0; i < call.before.size(); i++) {
    auto& input = call.inputs[i];
    if (input.sizes() != c10::IntArrayRef(call.before[i].sizes) || input.strides() != c10::IntArrayRef(call.before[i].strides)) changed.push_back(i);
  }
  put<uint32_t>(body, changed.size());
  for (auto i : changed) {
    put(body, i);
    put_layout(body, call.inputs[i]);
    put<uint64_t>(body, call.inputs[i].storage().nbytes());
  }
  std::vector<std::pair<const c10::StorageImpl*, uint64_t>> fresh;
  auto tensor = [&](Tensor result) {
    check_kind(result);
    if (!result.defined()) return put<uint8_t>(body, kUndefined);
    auto* storage = result.storage().unsafeGetStorageImpl();
    for (size_t i = 0; i < call.inputs.size(); i++) {
      if (call.inputs[i].storage().unsafeGetStorageImpl() != storage) continue;
      put<uint8_t>(body, kOfArgument);
      put_layout(body, result);
      return put<uint32_t>(body, i);
    }
    auto known = std::find_if(fresh.begin(), fresh.end(), [&](auto& f) { return f.first == storage; });
    if (known == fresh.end()) {
      // Not of this device, such as a number: brought there.
      if (result.device() != device_) result = result.to(device_);
      ask_for(result.storage().nbytes());
      keep(next, result.storage());
      if (made) put(*made, next), put<uint64_t>(*made, result.storage().nbytes());
      fresh.emplace_back(result.storage().unsafeGetStorageImpl(), next++);
      known = fresh.end() - 1;
    }
    put<uint8_t>(body, kNew);
    put_layout(body, result);
    put<uint64_t>(body, known->second);
    put<uint64_t>(body, result.storage().nbytes());
  };
  put<uint32_t>(body, call.stack.size());
  for (auto& value : call.stack) {
    if (value.isTensor()) {
      body += 'T';
      tensor(value.toTensor());
    } else if (value.isTensorList()) {
      auto list = value.toTensorVector();
      body += 'M';
      put<uint32_t>(body, list.size());
      for (auto& element : list) tensor(element);
    } else if (value.isInt()) {
      body += 'i';
      put(body, value.toInt());
    } else if (value.isBool()) {
      body += 'b';
      put<uint8_t>(body, value.toBool());
    } else if (value.isDouble()) {
      body += 'd';
      put(body, value.toDouble());
    } else if (value.isComplexDouble()) {
      body += 'c';
      put(body, value.toComplexDouble().real());
      put(body, value.toComplexDouble().imag());
    } else {
      TORCH_CHECK_NOT_IMPLEMENTED(false, "a result of kind ", value.tagKind());
    }
  }
  return body;
}

// An operator may have made the storage of an argument larger.
void Executor::recount(Call& call) {
  for (auto* held : call.held) {
    auto bytes = held->storage.nbytes();
    used += bytes - held->bytes;
    held->bytes = bytes;
  }
  peak = std::max(peak, used);
}

}  // namespace tessera
