#include "pipeline/share_prompts.h"

#include <span>

#include "comm/collectives.h"
#include "tensor/scope.h"

namespace tessera::pipeline {
namespace {

using tensor::Tensor;

const comm::Tag kTag{"join", -1};

// Each as the number of its ids and then these.
Tensor packed(const PromptIds& prompts) {
  std::vector<int32_t> all;
  for (const auto& ids : prompts) {
    all.push_back(static_cast<int32_t>(ids.size()));
    all.insert(all.end(), ids.begin(), ids.end());
  }
  return Tensor::from(std::span<const int32_t>(all), {std::ssize(all)});
}

PromptIds unpacked(const Tensor& said) {
  PromptIds prompts;
  const std::span all(said.data<int32_t>(), static_cast<size_t>(said.elements()));
  for (size_t at = 0; at < all.size();) {
    const auto count = static_cast<size_t>(all[at++]);
    const auto ids = all.subspan(at, count);
    prompts.emplace_back(ids.begin(), ids.end());
    at += count;
  }
  return prompts;
}

}  // namespace

PromptIds share_prompts(comm::Communicator* world, const std::function<PromptIds()>& ask) {
  if (!world || world->size() == 1) return ask();
  tensor::Scope aside = tensor::current_scope();  // it was not foretold
  aside.memory = nullptr;
  const tensor::BindScope bind(aside);
  return unpacked(
      comm::broadcast(*world, 0, packed(world->rank() == 0 ? ask() : PromptIds()), kTag));
}

int64_t least_of(comm::Communicator* world, int64_t number) {
  if (!world || world->size() == 1) return number;
  int64_t least[] = {-number};
  comm::all_reduce_max(*world, least, kTag);
  return -least[0];
}

}  // namespace tessera::pipeline
