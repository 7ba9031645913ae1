#include "program/generator.h"

#include <ATen/core/GeneratorForPrivateuseone.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <exception>

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
  // Where it is is in its state. Copies and pickles ask for this besides.
  void set_offset(uint64_t offset) override { TORCH_CHECK(offset == 0, "a generator of a virtual card has a state, and no offset"); }
  uint64_t get_offset() const override { return 0; }
  void set_state(const c10::TensorImpl& state) override {
    TORCH_CHECK(state.device().is_cpu() && state.dtype() == caffe2::TypeMeta::Make<uint8_t>() && state.is_contiguous() && state.numel() > 0,
                "the state of a generator is a row of bytes on the processor");
    state_.assign(static_cast<const char*>(state.data()), state.numel());
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;
  Generator* clone_impl() const override {
    auto* other = new Generator;
    other->seed_ = seed_;
    other->state_ = state_;
    return other;
  }

 private:
  friend class Drawing;
  uint64_t seed_ = c10::detail::getNonDeterministicRandom();
  Bytes state_;
};

at::Generator new_generator() { return at::make_generator<Generator>(); }

static Generator& of_card(const at::Generator& generator) {
  TORCH_CHECK(generator.device() == kDevice, "Expected a '", kDevice.type(), "' device type for generator but found '", generator.device().type(), "'");
  return *generator.get<Generator>();
}

Drawing::Drawing(const at::Generator& of) : Drawing(of_card(of)) {}

Drawing::Drawing(Generator& of) : use_(client()), of_(of), before_(random_state()), failing_(std::uncaught_exceptions()) {
  if (of_.state_.empty()) client().seed(of_.seed_);
  else set_random_state(of_.state_);
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
  attempt([&] { of_.state_ = random_state(); });
  attempt([&] { set_random_state(before_); });
  // What went wrong before this is what the program is to see.
  if (error && std::uncaught_exceptions() == failing_) std::rethrow_exception(error);
}

c10::intrusive_ptr<c10::TensorImpl> Generator::get_state() const {
  // One at which nothing was drawn yet has a state once the card was there.
  if (state_.empty()) Drawing there(const_cast<Generator&>(*this));
  auto tensor = at::empty({int64_t(state_.size())}, at::kByte);
  std::memcpy(tensor.mutable_data_ptr(), state_.data(), state_.size());
  return tensor.getIntrusivePtr();
}

}  // namespace tessera
