// What a call gives back, from meta tensors that share storages as the real ones do.
#include <ATen/core/LegacyTypeDispatch.h>

#include "program/operator.h"

namespace tessera {

void infer(Operator& op, Entry& entry, const Bytes& key, Slots& slots) {
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
  auto expect = [&](const Tensor& result, bool aliases) {
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
    // A number that is not in the key may decide whether an argument is given back.
    TORCH_CHECK(expected.kind != kOfArgument || aliases || slots.changing.empty(), "it may give an argument back, or not");
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
    bool aliases = schema.returns()[i].alias_info() != nullptr;
    if (op.written[i] >= 0) {
      entry.returns.push_back({Returned::kArgument, uint32_t(op.written[i]), 0});
    } else if (stack[i].isTensor()) {
      expect(stack[i].toTensor(), aliases);
      entry.returns.push_back({Returned::kTensor, first, 1});
    } else {
      for (const Tensor& result : stack[i].toTensorVector()) expect(result, aliases);
      entry.returns.push_back({Returned::kList, first, uint32_t(entry.results.size() - first)});
    }
  }
}

}  // namespace tessera
