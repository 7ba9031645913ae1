// Random numbers of the card: of all of the program, and of generators of its own (`torch.Generator(device="tessera")`).
#pragma once
#include <ATen/core/Generator.h>

#include "program/client.h"

namespace tessera {

// The state of the card's, as bytes of PyTorch's for the device behind it.
Bytes random_state();
void set_random_state(const Bytes& state);

at::Generator new_generator();

struct Generator;

// The card draws for this generator for as long as this lives: what it draws for the program goes on afterwards where it was.
class Drawing {
 public:
  explicit Drawing(const at::Generator& of);
  explicit Drawing(Generator& of);
  ~Drawing() noexcept(false);

 private:
  Client::Use use_;
  Generator& of_;
  Bytes before_;
  int failing_;
};

}  // namespace tessera
