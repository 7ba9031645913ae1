#include "generator.h"

#include <ATen/core/GeneratorForPrivateuseone.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <exception>

#include "client.h"

namespace tessera {

Bytes random_state() {
  Client::Use lock(client());
  client().not_in_graph("it asks the slice server for the state of the random numbers");
  client().ready();
  put<uint8_t>(client().queue(), kGetRandom);
  auto reply = client().ask();
  return Bytes(reply.rest(), reply.left());
}

void set_random_state(const Bytes& state) {
  Client::Use lock(client());
  client().not_in_graph("it sets the state of the random numbers");
  put<uint8_t>(client().queue(), kSetRandom);
  put_text(client().queue(), state);
  client().queued();
}

// Where a generator is: at a seed nothing was drawn from, or at a state.
struct Generator final : c10::GeneratorImpl {
  Generator() : GeneratorImpl(kDevice, kKeys) {}

  void set_current_seed(uint64_t seed) override {
    seed_ = seed;
    state_.clear();
  }
  uint64_t current_seed() const override { return seed_; }
  uint64_t seed() override {
    set_current_seed(c10::detail::getNonDeterministicRandom());
    return seed_;
  }
  void set_offset(uint64_t) override { TORCH_CHECK_NOT_IMPLEMENTED(false, "a generator of a virtual card has a state, and no offset"); }
  uint64_t get_offset() const override { TORCH_CHECK_NOT_IMPLEMENTED(false, "a generator of a virtual card has a state, and no offset"); }
  void set_state(const c10::TensorImpl& state) override {
    TORCH_CHECK(state.device().is_cpu() && state.dtype() == caffe2::TypeMeta::Make<uint8_t>() && state.is_contiguous(),
                "the state of a generator is a row of bytes on the processor");
    state_.assign(static_cast<const char*>(state.data()), state.numel());
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    auto bytes = state();
    auto tensor = at::empty({int64_t(bytes.size())}, at::kByte);
    std::memcpy(tensor.mutable_data_ptr(), bytes.data(), bytes.size());
    return tensor.getIntrusivePtr();
  }
  Generator* clone_impl() const override {
    auto* other = new Generator;
    other->seed_ = seed_;
    other->state_ = state_;
    return other;
  }

  // Has the card draw from where this is.
  void begin() const {
    if (state_.empty()) client().seed(seed_);
    else set_random_state(state_);
  }
  // Is from now on where the card is.
  void follow() { state_ = random_state(); }

 private:
  Bytes state() const {
    if (!state_.empty()) return state_;
    auto before = random_state();
    begin();
    auto own = random_state();
    set_random_state(before);
    return own;
  }

  uint64_t seed_ = c10::detail::getNonDeterministicRandom();
  Bytes state_;
};

at::Generator new_generator() { return at::make_generator<Generator>(); }

Drawing::Drawing(const at::Generator& of) : of_(of), failing_(std::uncaught_exceptions()) {
  TORCH_CHECK(of.device() == kDevice, "Expected a '", kDevice.type(), "' device type for generator but found '", of.device().type(), "'");
  before_ = random_state();
  of_.get<Generator>()->begin();
}

Drawing::~Drawing() noexcept(false) {
  std::exception_ptr error;
  auto attempt = [&](auto work) {
    try {
      work();
    } catch (...) {
      if (!error) error = std::current_exception();
    }
  };
  // Whatever became of the operation, the program goes on where it was.
  attempt([&] { of_.get<Generator>()->follow(); });
  attempt([&] { set_random_state(before_); });
  // What went wrong before this is what the program is to see.
  if (error && std::uncaught_exceptions() == failing_) std::rethrow_exception(error);
}

}  // namespace tessera
