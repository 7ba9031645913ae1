// What the boxed dispatcher cannot do: make tensors, copy between devices, change storages; and what PyTorch asks of a device.
#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <pthread.h>
#include <torch/library.h>
#include <torch/version.h>

#include <unordered_set>

#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 9
#include <c10/core/CachingDeviceAllocator.h>
#endif

#include "program/attention.h"
#include "program/client.h"
#include "program/generator.h"
#include "program/pinned.h"

namespace tessera {

// As `torch.accelerator` wants to know it, which PyTorch has from 2.9 on.
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 9
struct Accounts : c10::DeviceAllocator {
  bool initialized() override { return client().connected(); }
  // Nothing is cached: what a tensor leaves is free at once.
  void emptyCache(c10::MempoolId_t) override {}
  // There is one queue.
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex) override {
    c10::CachingDeviceAllocator::DeviceStats stats;
    for (auto* bytes : {&stats.allocated_bytes, &stats.reserved_bytes, &stats.active_bytes, &stats.requested_bytes}) {
      auto& all = bytes->at(static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE));
      all.current = client().used();
      all.peak = client().peak;
    }
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex) override { client().peak = client().used(); }
  // Later ones than the first have this.
  virtual std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex) {
    Client::Use use(client());
    size_t used = client().used(), limit = client().limit();
    return {limit > used ? limit - used : 0, limit};
  }
};
#else
using Accounts = c10::Allocator;
#endif

struct Allocator final : Accounts {
  c10::DataPtr allocate(size_t bytes) override {
    Client::Use lock(client());
    client().ask_for(bytes);
    auto id = client().next_storage();
    put<uint8_t>(client().queue(), kAllocate);
    put(client().queue(), id);
    put<uint64_t>(client().queue(), bytes);
    client().queued();
    return client().handle(id, bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void*, const void*, size_t) const override {
    TORCH_CHECK(false, "memory of a virtual card cannot be copied by address");
  }
};

c10::Allocator* allocator() {
  static Allocator one;
  return &one;
}

static void put_tensor(Bytes& to, const Tensor& tensor) {
  put(to, name_of(tensor.storage().unsafeGetStorageImpl()));
  put<uint8_t>(to, static_cast<uint8_t>(tensor.scalar_type()));
  put<uint8_t>(to, 0);
  put<uint8_t>(to, tensor.dim());
  put_numbers(to, tensor.sizes());
  put_numbers(to, tensor.strides());
  put<int64_t>(to, tensor.storage_offset());
}

void write_to(const Tensor& to, const Tensor& from) {
  // The server knows nothing of conjugate and negative views: what lies in the storage is written.
  Tensor plain = from.to(to.scalar_type()).expand(to.sizes()).contiguous().resolve_conj().resolve_neg();
  if (to.is_conj()) plain = plain.conj().resolve_conj();
  if (to.is_neg()) plain = plain.neg();
  Client::Use lock(client());
  client().not_in_graph("it copies from the program, and each replay would find what is there now; copy it to a tensor of the card before, "
                        "and write to that between replays");
  uint64_t bytes = plain.nbytes();
  bool bulk = bytes > kInline;
  // Alone in its frame, so that the frame can be executed again when its bulk data breaks off.
  if (bulk && client().keeps_journal()) client().flush();
  if (bulk) client().ready();
  auto& queue = client().queue();
  put<uint8_t>(queue, kWrite);
  put_tensor(queue, to);
  put(queue, bytes);
  put<uint8_t>(queue, bulk);
  if (!bulk) {
    queue.append(static_cast<const char*>(plain.const_data_ptr()), bytes);
    return client().queued();
  }
  client().flush(plain.const_data_ptr(), bytes);
}

Tensor upload(const Tensor& from) {
  at::AutoDispatchBelowADInplaceOrView below;
  Tensor made = at::detail::empty_generic(from.sizes(), allocator(), kKeys, from.scalar_type(), std::nullopt);
  write_to(made, from);
  return made;
}

// Reads a tensor into memory of the program that is laid out as it is sent.
static void receive(const Tensor& from, const Tensor& host) {
  Client::Use lock(client());
  client().not_in_graph("the program needs a value: a copy to the processor, .item(), a condition, or printing a tensor");
  client().ready();
  put<uint8_t>(client().queue(), kRead);
  put_tensor(client().queue(), from);
  auto reply = client().ask(host.nbytes());
  if (reply.get<uint8_t>()) client().bulk_receive(host.mutable_data_ptr(), host.nbytes());
  else if (host.nbytes()) std::memcpy(host.mutable_data_ptr(), reply.take(host.nbytes()), host.nbytes());
}

Tensor fetch(const Tensor& from) {
  Tensor host = at::empty(from.sizes(), at::TensorOptions(from.scalar_type()));
  receive(from, host);
  if (from.is_conj()) host._set_conj(true);
  if (from.is_neg()) host._set_neg(true);
  return host;
}

// Whether what is sent of a tensor is byte for byte what another has to hold.
static bool is_alike(const Tensor& from, const Tensor& to) {
  return to.is_cpu() && to.is_contiguous() && to.scalar_type() == from.scalar_type() && to.sizes() == from.sizes() &&
         from.is_conj() == to.is_conj() && from.is_neg() == to.is_neg();
}

static void check_layout(std::optional<at::Layout> layout) {
  TORCH_CHECK_NOT_IMPLEMENTED(c10::layout_or_default(layout) == at::kStrided, "sparse tensors are not supported on a virtual card");
}

static void check_type(at::ScalarType type) {
  TORCH_CHECK_NOT_IMPLEMENTED(!c10::isQIntType(type), "quantised tensors are not supported on a virtual card");
}

static Tensor empty(c10::IntArrayRef size, std::optional<at::ScalarType> type, std::optional<at::Layout> layout,
                    std::optional<at::Device>, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  check_layout(layout);
  check_type(c10::dtype_or_default(type));
  return at::detail::empty_generic(size, allocator(), kKeys, c10::dtype_or_default(type), format);
}

static Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<at::ScalarType> type,
                            std::optional<at::Layout> layout, std::optional<at::Device>, std::optional<bool>) {
  check_layout(layout);
  check_type(c10::dtype_or_default(type));
  return at::detail::empty_strided_generic(size, stride, allocator(), kKeys, c10::dtype_or_default(type));
}

// PyTorch's own gives a storage of the wrong size, which gradients are then read from.
static Tensor zero_tensor(c10::IntArrayRef size, std::optional<at::ScalarType> type, std::optional<at::Layout> layout,
                          std::optional<at::Device> device, std::optional<bool> pinned) {
  Tensor zeros = empty(size, type, layout, device, pinned, std::nullopt);
  return zeros.zero_();
}

static void grow(const c10::Storage& storage, uint64_t bytes) {
  Client::Use lock(client());
  client().grow(storage, bytes);
}

static const Tensor& resize(const Tensor& self, c10::IntArrayRef size, std::optional<at::MemoryFormat> format) {
  auto* inside = self.unsafeGetTensorImpl();
  if (inside->sizes() != size) {
    auto bytes = at::detail::computeStorageNbytesContiguous(size, inside->itemsize(), inside->storage_offset());
    if (bytes > inside->storage().nbytes()) grow(inside->storage(), bytes);
    inside->set_sizes_contiguous(size);
  }
  if (format && *format != at::MemoryFormat::Preserve) inside->empty_tensor_restride(*format);
  return self;
}

static Tensor& set_view(Tensor& self, c10::Storage source, int64_t offset, c10::IntArrayRef size, c10::IntArrayRef stride) {
  TORCH_CHECK(source.device() == kDevice, "Attempted to set the storage of a tensor on device \"", kDevice,
              "\" to a storage on different device \"", source.device(), "\"");
  std::vector<int64_t> strides = stride.vec();
  if (strides.empty()) {
    auto contiguous = c10::contiguous_strides(size);
    strides.assign(contiguous.begin(), contiguous.end());
  }
  auto* inside = self.unsafeGetTensorImpl();
  auto bytes = at::detail::computeStorageNbytes(size, strides, inside->itemsize(), offset);
  if (bytes > source.nbytes()) grow(source, bytes);
  inside->set_storage_keep_dtype(std::move(source));
  inside->set_storage_offset(offset);
  inside->set_sizes_and_strides(size, strides);
  return self;
}

static Tensor& set_storage(Tensor& self, c10::Storage source) {
  int64_t count = source.nbytes() / self.itemsize();
  return set_view(self, std::move(source), 0, {count}, {1});
}

static Tensor& set_tensor(Tensor& self, const Tensor& source) {
  return set_view(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

static Tensor& set_empty(Tensor& self) {
  Client::Use lock(client());
  auto nothing = c10::Storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), 0, allocator()->allocate(0),
                                                                    allocator(), true));
  return set_view(self, std::move(nothing), 0, {0}, {1});
}

static Tensor copy_from(const Tensor& self, const Tensor& to, bool) {
  if (self.device() == kDevice && to.device() == kDevice) {
    static auto copy = c10::Dispatcher::singleton().findSchemaOrThrow("aten::copy_", "");
    torch::jit::Stack stack{to, self, false};
    dispatch(copy, &stack);
  } else if (to.device() == kDevice) {
    TORCH_CHECK(self.is_cpu(), "a tensor is copied to a virtual card from the processor, not from ", self.device());
    write_to(to, self);
  } else if (is_alike(self, to)) {
    receive(self, to);
  } else {
    to.copy_(fetch(self));
  }
  return to;
}

static Tensor copy_and_resize(const Tensor& self, const Tensor& to) {
  to.resize_(self.sizes());
  return copy_from(self, to, false);
}

static at::Scalar item(const Tensor& self) { return at::_local_scalar_dense(fetch(self)); }

// Programs count whole numbers with it on any device but the processor, which cannot. The counts are the same in floating point.
static Tensor histogram(const Tensor& self, int64_t bins, const at::Scalar& low, const at::Scalar& high) {
  static auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::histc", "");
  bool whole = at::isIntegralType(self.scalar_type(), true);
  torch::jit::Stack stack{whole ? self.to(at::kDouble) : self, bins, low, high};
  dispatch(op, &stack);
  return whole ? stack[0].toTensor().to(self.scalar_type()) : stack[0].toTensor();
}

// One queue in order: streams and events are honest about that. A stream is always the one queue; an event counts as done when all
// that was issued before it has been executed, which is waited for.
struct Guard final : c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::PrivateUse1> {
  c10::Device getDevice() const override { return kDevice; }
  c10::Device exchangeDevice(c10::Device) const override { return kDevice; }
  c10::Stream getStream(c10::Device) const noexcept override { return c10::Stream(c10::Stream::DEFAULT, kDevice); }
  c10::Stream getNewStream(c10::Device, int) const override { return c10::Stream(c10::Stream::DEFAULT, kDevice); }
  c10::Stream exchangeStream(c10::Stream) const noexcept override { return c10::Stream(c10::Stream::DEFAULT, kDevice); }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  void record(void** event, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {
    static char recorded;
    *event = &recorded;
  }
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override {
    synchronizeDevice(0);
    return true;
  }
  void destroyEvent(void*, const c10::DeviceIndex) const noexcept override {}
  bool queryStream(const c10::Stream&) const override {
    synchronizeDevice(0);
    return true;
  }
  void synchronizeStream(const c10::Stream&) const override { synchronizeDevice(0); }
  void synchronizeEvent(void*) const override { synchronizeDevice(0); }
  void synchronizeDevice(const c10::DeviceIndex) const override {
    Client::Lock lock(client());
    client().synchronize();
  }
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  at::Device getDeviceFromPtr(void*) const override { return kDevice; }
  at::Allocator* getPinnedMemoryAllocator() const override { return pinned(); }
  at::Generator getNewGenerator(c10::DeviceIndex) const override { return new_generator(); }
  bool isPinnedPtr(const void* address) const override { return is_pinned(address); }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex) const override { return 0; }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex) const override { return 0; }
  void setCurrentDevice(c10::DeviceIndex index) const override {
    TORCH_CHECK(index == 0, "there is one virtual card, not ", index + 1);
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override { grow(storage, bytes); }
};

static Tensor refuse_quantised(const Tensor&, double, int64_t, at::ScalarType) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "quantised tensors are not supported on a virtual card");
}

void install(const std::vector<std::string>& bound, Words words) {
  set_words(std::move(words));
  c10::SetAllocator(c10::DeviceType::PrivateUse1, allocator());
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  install_attention();
  pthread_atfork(nullptr, nullptr, [] { client().after_fork(); });
  static auto key = c10::DispatchKey::PrivateUse1;
  static torch::Library fallback(torch::Library::IMPL, "_", key, __FILE__, __LINE__);
  fallback.fallback(torch::CppFunction::makeFromBoxedFunction<&dispatch>());
  static torch::Library library(torch::Library::IMPL, "aten", key, __FILE__, __LINE__);
  std::unordered_set<std::string> own;
  auto bind = [&](const char* name, auto kernel) {
    own.insert(name);
    library.impl(name, std::move(kernel));
  };
  bind("empty.memory_format", TORCH_FN(empty));
  bind("empty_strided", TORCH_FN(empty_strided));
  bind("_efficientzerotensor", TORCH_FN(zero_tensor));
  bind("resize_", TORCH_FN(resize));
  bind("_copy_from", TORCH_FN(copy_from));
  bind("_copy_from_and_resize", TORCH_FN(copy_and_resize));
  bind("_local_scalar_dense", TORCH_FN(item));
  bind("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  bind("view", TORCH_FN(at::native::view));
  bind("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  bind("unfold", TORCH_FN(at::native::unfold));
  bind("view_as_real", TORCH_FN(at::native::view_as_real));
  bind("view_as_complex", TORCH_FN(at::native::view_as_complex));
  bind("set_.source_Storage", TORCH_FN(set_storage));
  bind("set_.source_Storage_storage_offset", TORCH_FN(set_view));
  bind("set_.source_Tensor", TORCH_FN(set_tensor));
  bind("set_", TORCH_FN(set_empty));
  bind("histc", TORCH_FN(histogram));
  bind("quantize_per_tensor", TORCH_FN(refuse_quantised));
  for (auto& name : bound) {
    if (!own.count(name)) library.impl(name.c_str(), torch::CppFunction::makeFromBoxedFunction<&dispatch>());
  }
  // `_copy_from` sees conjugate and negative bits itself: their fallbacks would clone, which copies, which clones.
  static torch::Library conjugate(torch::Library::IMPL, "aten", c10::DispatchKey::Conjugate, __FILE__, __LINE__);
  static torch::Library negative(torch::Library::IMPL, "aten", c10::DispatchKey::Negative, __FILE__, __LINE__);
  conjugate.impl("_copy_from", torch::CppFunction::makeFallthrough());
  negative.impl("_copy_from", torch::CppFunction::makeFallthrough());
}

}  // namespace tessera

namespace c10::impl {
C10_REGISTER_GUARD_IMPL(PrivateUse1, tessera::Guard);
}
