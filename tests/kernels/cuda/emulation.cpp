#include "kernels/cuda/emulation.h"

#include <algorithm>
#include <bit>
#include <exception>
#include <random>
#include <set>
#include <stdexcept>
#include <string>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace tessera::emulation {
namespace {

constexpr size_t kStack = 256 * 1024;
// The hot lines of stacks lie in different sets of a cache.
constexpr size_t kColours = 64, kColour = 1088;

// A place to continue: a stack with the registers of the calling convention.
#if defined(__x86_64__)
using Place = void*;
extern "C" void tessera_switch_fiber(Place* from, Place to);
asm(R"(
.text
.globl tessera_switch_fiber
.type tessera_switch_fiber, @function
tessera_switch_fiber:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
)");
void prepare(Place& place, std::byte* stack, size_t bytes, void (*entry)()) {
  auto* top = reinterpret_cast<void**>(stack + bytes);
  *--top = nullptr;  // as if entry had been called: aligned to 16 less the return address
  *--top = reinterpret_cast<void*>(entry);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  place = static_cast<void*>(top);
}
void switch_to(Place& from, Place& to) { tessera_switch_fiber(&from, to); }
#else
using Place = ucontext_t;
void prepare(Place& place, std::byte* stack, size_t bytes, void (*entry)()) {
  getcontext(&place);
  place.uc_stack.ss_sp = stack;
  place.uc_stack.ss_size = bytes;
  place.uc_link = nullptr;
  makecontext(&place, entry, 0);
}
void switch_to(Place& from, Place& to) { swapcontext(&from, &to); }
#endif

struct Barrier {
  int members = 0, arrived = 0;
  int64_t generation = 0;
  std::vector<int> waiting;  // turns of threads
};

// Turns of the runnable threads.
struct Turns {
  std::array<uint64_t, 16> words{};

  void add(int turn) { words[size_t(turn) / 64] |= uint64_t{1} << turn % 64; }
  void remove(int turn) { words[size_t(turn) / 64] &= ~(uint64_t{1} << turn % 64); }
  /// The first from this turn on; `end`: none before it.
  int next(int turn, int end) const {
    for (; turn < end; turn = (turn / 64 + 1) * 64)
      if (const uint64_t left = words[size_t(turn) / 64] >> turn % 64; left != 0)
        return std::min(end, turn + std::countr_zero(left));
    return end;
  }
};

struct Copy {
  void* to;
  const void* from;
  bool valid;
  int64_t group;
};

struct Product {
  std::function<void()> work;
  int64_t group;
  float* sums;
  std::vector<float> sums_then;  // empty if an earlier product changes the sums
  const uint32_t* left;
  std::array<uint32_t, 4> left_then;
};

struct Warp {
  Barrier barrier;
  Slots slots[2];
};

struct Thread {
  Place place;
  int index = 0, turn = 0;
  bool done = false;
  int shown = 0;  // the next of the two sets of slots
  std::vector<Copy> copies;
  int64_t committed = 0;
  std::vector<Product> products;
  int64_t committed_products = 0;
  bool products_begun = false, rows_shown = false;
  std::vector<size_t> unseen;  // lines of shared memory with writes before a fence
  std::function<bool()> ready;
};

// A store not yet visible to other blocks.
struct LateStore {
  void* to;
  uint4 value;
  int thread;
  const Barrier* barrier;  // the thread's first barrier since the store; null: none
  int64_t phase;           // phase of the barrier at its arrival
};

struct Block {
  int index = 0, next = 0;
  int place = 0;  // number within the launch
  size_t first_stack = 0;
  bool left = false;  // for other blocks
  std::vector<LateStore> late;
  Barrier barrier;
  std::array<Barrier, 16> named;
  std::vector<std::function<void()>> engine;  // requested, not yet done
  std::vector<Warp> warps;
  std::vector<Thread> threads;
  Turns able;
  std::vector<uint4> shared;
  std::vector<unsigned char> shown;  // shared memory in the view of products and the copy engine
  std::vector<uint64_t*> fresh_barriers;
  std::set<void*> copied_to;  // by copies under way
  const std::function<void()>* body = nullptr;
  Thread* running = nullptr;
  Place scheduler;
  std::exception_ptr error;
};
Block only;
Block* block = &only;  // the running block

// Blocks running at once.
struct Grid {
  std::vector<Block> blocks;
  std::vector<size_t> running;
  std::vector<uint32_t> shares;  // turns of each block
  std::mt19937 random;
  uint32_t between = 2;  // touched words between changes of blocks, on average
};
Grid* grid = nullptr;

// The next runnable thread in turn, or null.
Thread* next_thread() {
  if (block->left || block->error) return nullptr;
  const auto threads = static_cast<int>(block->threads.size());
  const int first = block->next;
  for (const auto& [from, end] : {std::pair(first, threads), std::pair(0, first)})
    for (int turn = block->able.next(from, end); turn < end;
         turn = block->able.next(turn + 1, end)) {
      Thread& thread = block->threads[size_t(backwards ? threads - 1 - turn : turn)];
      if (thread.ready && !thread.ready()) continue;
      thread.ready = nullptr;
      block->next = (turn + 1) % threads;
      block->running = &thread;
      threadIdx = {static_cast<unsigned>(thread.index), 0, 0};
      return &thread;
    }
  return nullptr;
}

// Others run until it is this thread's turn again.
void let_others_run() {
  Thread& self = *block->running;
  Thread* const next = next_thread();
  if (next != &self) switch_to(self.place, next ? next->place : block->scheduler);
}

void enter() {
  try {
    (*block->body)();
  } catch (...) {
    block->error = std::current_exception();
  }
  block->running->done = true;
  block->able.remove(block->running->turn);
  let_others_run();
}

void end_phase(Barrier& barrier) {
  barrier.arrived = 0;
  ++barrier.generation;
  for (const int turn : barrier.waiting) block->able.add(turn);
  barrier.waiting.clear();
}

void wait_at(Barrier& barrier) {
  if (++barrier.arrived == barrier.members) return end_phase(barrier);
  const int turn = block->running->turn;
  barrier.waiting.push_back(turn);
  block->able.remove(turn);
  let_others_run();
}

void open_block(int threads, int64_t shared_bytes, const std::function<void()>& body) {
  if (threads <= 0 || threads % 32 != 0 || threads > 1024)
    throw std::logic_error("a block of " + std::to_string(threads) + " threads");
  static std::vector<std::unique_ptr<std::byte[]>> stacks;
  const size_t first = block->first_stack;
  while (stacks.size() < first + static_cast<size_t>(threads))
    stacks.emplace_back(new std::byte[kStack]);
  block->body = &body;
  block->error = nullptr;
  block->shared.assign(static_cast<size_t>(shared_bytes) / 16 + 73, {~0u, ~0u, ~0u, ~0u});
  const auto* base = reinterpret_cast<const unsigned char*>(block->shared.data());
  block->shown.assign(base, base + block->shared.size() * 16);
  block->fresh_barriers.clear();
  block->copied_to.clear();
  block->named = {};
  block->engine.clear();
  block->late.clear();
  block->next = 0;
  block->able = {};
  block->barrier = {};
  block->barrier.members = threads;
  block->warps.assign(static_cast<size_t>(threads / 32), Warp{});
  for (Warp& warp : block->warps) warp.barrier.members = 32;
  block->threads.assign(static_cast<size_t>(threads), Thread{});
  for (int t = 0; t < threads; ++t) {
    Thread& thread = block->threads[static_cast<size_t>(t)];
    thread.index = t;
    thread.turn = backwards ? threads - 1 - t : t;
    block->able.add(thread.turn);
    const size_t stack = first + static_cast<size_t>(t);
    prepare(thread.place, stacks[stack].get(), kStack - stack % kColours * kColour, enter);
  }
}

// Runs the block until its threads can do no more, or leave for other blocks; false: nothing ran.
bool run_on() {
  bool ran = false;
  block->left = false;
  if (grid) blockIdx = {static_cast<unsigned>(block->place), 0, 0};
  while (Thread* const next = next_thread()) {
    switch_to(block->scheduler, next->place);
    ran = true;
  }
  if (!block->left && !block->engine.empty() && !block->error) {
    const auto work = std::move(block->engine.back());
    block->engine.pop_back();
    work();
    ran = true;
  }
  return ran;
}

bool ended() {
  return std::all_of(block->threads.begin(), block->threads.end(),
                     [](const Thread& thread) { return thread.done; });
}

void close_block() {
  if (block->error) std::rethrow_exception(block->error);
  for (const Thread& thread : block->threads)
    if (!thread.done)
      throw std::logic_error("thread " + std::to_string(thread.index) +
                             " waits for threads that do not come");
  for (const Thread& thread : block->threads)
    if (!thread.products.empty()) throw std::logic_error("nobody waited for a product");
  if (!block->copied_to.empty()) throw std::logic_error("nobody waited for a copy");
  for (size_t name = 0; name < block->named.size(); ++name)
    if (block->named[name].arrived != 0)
      throw std::logic_error("barrier " + std::to_string(name) + " still waits for threads");
}

void show_to_others(const LateStore& one) { std::memcpy(one.to, &one.value, 16); }

// One late store of any block becomes visible.
void show_any() {
  Block& from = grid->blocks[grid->running[grid->random() % grid->running.size()]];
  if (from.late.empty()) return;
  const size_t at = grid->random() % from.late.size();
  show_to_others(from.late[at]);
  from.late.erase(from.late.begin() + static_cast<ptrdiff_t>(at));
}

uint32_t share_of(size_t index, size_t blocks) {
  constexpr std::array<uint32_t, 3> kShares = {1, 8, 64};
  switch (order.kind) {
    case Order::Kind::random: return kShares[grid->random() % kShares.size()];
    case Order::Kind::first_starves: return index < blocks / 2 ? 1 : 64;
    case Order::Kind::last_starves: return index < blocks / 2 ? 64 : 1;
    case Order::Kind::even: break;
  }
  return 1;
}

// The place in `running` of the block with the next turn.
size_t next_turn() {
  uint32_t sum = 0;
  for (const size_t b : grid->running) sum += grid->shares[b];
  uint32_t draw = grid->random() % sum;
  for (size_t at = 0; at < grid->running.size(); ++at) {
    const uint32_t share = grid->shares[grid->running[at]];
    if (draw < share) return at;
    draw -= share;
  }
  return 0;
}

// A turn of a running block; false: it could do nothing.
bool take_turn(size_t at) {
  block = &grid->blocks[grid->running[at]];
  const bool ran = run_on();
  if (block->error || ended()) {
    for (const LateStore& one : block->late) show_to_others(one);
    close_block();
    grid->running.erase(grid->running.begin() + static_cast<ptrdiff_t>(at));
  }
  if (!grid->running.empty() && grid->random() % 8 == 0) show_any();
  return ran;
}

}  // namespace

void run_grids(const std::vector<Blocks>& launches) {
  std::vector<const Blocks*> of;  // the launch of each block
  for (const Blocks& one : launches) of.insert(of.end(), static_cast<size_t>(one.count), &one);
  const size_t all = of.size();
  Grid made{std::vector<Block>(all), {}, {}, std::mt19937(order.seed)};
  struct Within {
    explicit Within(Grid* one) { grid = one; }
    ~Within() {
      grid = nullptr;
      block = &only;
    }
    Within(const Within&) = delete;
    Within& operator=(const Within&) = delete;
  } const within(&made);
  made.between = std::array<uint32_t, 3>{1, 4, 32}[made.random() % 3];
  for (size_t b = 0; b < all; ++b) made.shares.push_back(share_of(b, all));
  const size_t resident = order.resident > 0 ? static_cast<size_t>(order.resident) : all;
  size_t opened = 0, stacks = 0;
  int place = 0;
  turns_taken = 0;
  while (opened < all || !made.running.empty()) {
    for (; opened < all && made.running.size() < resident; ++opened) {
      block = &made.blocks[opened];
      const Blocks& launch = *of[opened];
      place = opened > 0 && of[opened - 1] == &launch ? place + 1 : 0;
      block->index = static_cast<int>(opened);
      block->place = place;
      block->first_stack = stacks;
      stacks += static_cast<size_t>(launch.threads);
      open_block(launch.threads, launch.shared_bytes, launch.body);
      made.running.push_back(opened);
    }
    ++turns_taken;
    if (take_turn(next_turn())) continue;
    bool any = false;
    for (size_t at = 0; at < made.running.size() && !any; ++at) any = take_turn(at);
    if (!any) close_block();  // says which thread waits
  }
}

void touch_words(bool wait) {
  if (!grid || (!wait && grid->random() % grid->between != 0)) return;
  block->left = true;
  let_others_run();
}

void store_late(void* to, const void* from) {
  LateStore one{to, {}, block->running->index, nullptr, 0};
  std::memcpy(&one.value, from, 16);
  if (!grid) return show_to_others(one);
  block->late.push_back(one);
}

void release_stores() {
  std::erase_if(block->late, [](const LateStore& one) {
    const bool ordered = one.barrier && one.phase < one.barrier->generation;
    if (!ordered && one.thread != block->running->index) return false;
    show_to_others(one);
    return true;
  });
}

void run_block(int threads, int64_t shared_bytes, const std::function<void()>& body) {
  open_block(threads, shared_bytes, body);
  while (run_on()) {
  }
  close_block();
}

// Stores before a barrier are released by any of its threads behind it.
void wait_in_order(Barrier& barrier) {
  for (LateStore& one : block->late)
    if (one.thread == block->running->index && !one.barrier)
      one.barrier = &barrier, one.phase = barrier.generation;
  block->running->rows_shown = false;
  wait_at(barrier);
}

void wait_for_block() { wait_in_order(block->barrier); }

int lane() { return block->running->index % 32; }

void wait_for_warp() {
  wait_at(block->warps[static_cast<size_t>(block->running->index / 32)].barrier);
}

const Slots& show(const void* value, size_t bytes) {
  Warp& warp = block->warps[static_cast<size_t>(block->running->index / 32)];
  Slots& slots = warp.slots[block->running->shown];
  block->running->shown ^= 1;  // a new value does not disturb readers of the last
  std::memcpy(slots[static_cast<size_t>(lane())].data(), value, bytes);
  wait_at(warp.barrier);
  return slots;
}

unsigned char* shared_base() {
  auto* data = reinterpret_cast<unsigned char*>(block->shared.data());
  return data + (1024 - reinterpret_cast<uintptr_t>(data) % 1024) % 1024;
}

// A multiple of 128 and of no more.
unsigned char* dynamic_shared() { return shared_base() + 128; }

void wait_until(std::function<bool()> ready) {
  if (ready()) return;
  block->running->ready = std::move(ready);
  let_others_run();
}

void engine_later(std::function<void()> work) {
  if (backwards) return work();
  block->engine.push_back(std::move(work));
}

Barrier& named(int name, int threads) {
  Barrier& barrier = block->named.at(static_cast<size_t>(name));
  if (barrier.arrived > 0 && barrier.members != threads)
    throw std::logic_error("threads that count a barrier's members otherwise");
  barrier.members = threads;
  return barrier;
}

void wait_for_threads(int name, int threads) { wait_in_order(named(name, threads)); }

void arrive_for_threads(int name, int threads) {
  Barrier& barrier = named(name, threads);
  if (++barrier.arrived == barrier.members) end_phase(barrier);
}

size_t line_of(const void* shared) {
  return static_cast<size_t>(static_cast<const unsigned char*>(shared) -
                             reinterpret_cast<const unsigned char*>(block->shared.data())) /
         16 * 16;
}

unsigned char* line_at(size_t line) {
  return reinterpret_cast<unsigned char*>(block->shared.data()) + line;
}

void store_line(void* to, const void* from) {
  if (reinterpret_cast<uintptr_t>(to) % 16)
    throw std::logic_error("16 bytes that are stored at no multiple of 16");
  std::memcpy(to, from, 16);
  block->running->unseen.push_back(line_of(to));
}

void show_to_engine() {
  for (const size_t line : block->running->unseen)
    std::memcpy(&block->shown[line], line_at(line), 16);
  block->running->unseen.clear();
}

void engine_wrote(const void* shared, int64_t bytes) {
  std::memcpy(&block->shown[line_of(shared)], shared, static_cast<size_t>(bytes));
}

void check_shown(const void* at) {
  const size_t line = line_of(at);
  if (std::memcmp(&block->shown[line], line_at(line), 16) != 0)
    throw std::logic_error("shared memory that a thread wrote and did not show (fence_shared)");
}

void show_rows() { block->running->rows_shown = true; }

void check_rows_shown() {
  if (!block->running->rows_shown)
    throw std::logic_error("a box of rows that others wrote, without fence_rows()");
}

void barrier_made(uint64_t* barrier) { block->fresh_barriers.push_back(barrier); }

void make_barriers_known() {
  for (uint64_t* barrier : block->fresh_barriers) {
    auto phases = std::bit_cast<Phases>(*barrier);
    phases.valid = kBarrier;
    *barrier = std::bit_cast<uint64_t>(phases);
  }
  block->fresh_barriers.clear();
}

void product_later(std::function<void()> work, float* sums, int count, const uint32_t* left) {
  Thread& self = *block->running;
  if (!self.products_begun)
    throw std::logic_error("a product before products_begin(), after a wait for others");
  Product made{std::move(work), self.committed_products, sums, {}, left, {}};
  const auto shares = [&](const Product& other) { return other.sums == sums; };
  if (std::none_of(self.products.begin(), self.products.end(), shares))
    made.sums_then.assign(sums, sums + count);
  if (left) std::copy_n(left, 4, made.left_then.begin());
  self.products.push_back(std::move(made));
}

void begin_products() { block->running->products_begun = true; }

void do_product(const Product& product) {
  const std::vector<float>& then = product.sums_then;
  if (!then.empty() && std::memcmp(then.data(), product.sums, then.size() * sizeof(float)) != 0)
    throw std::logic_error("sums of a product that is under way were written");
  if (product.left && !std::equal(product.left_then.begin(), product.left_then.end(), product.left))
    throw std::logic_error("registers of a product that is under way were written");
  product.work();
}

void commit_products() { ++block->running->committed_products; }

void finish_products(int left) {
  Thread& self = *block->running;
  const int64_t before = self.committed_products - left;
  size_t done = 0;
  for (; done < self.products.size() && self.products[done].group < before; ++done)
    do_product(self.products[done]);
  if (done > 0) self.products_begun = false;
  self.products.erase(self.products.begin(), self.products.begin() + static_cast<ptrdiff_t>(done));
}

void copy_later(void* to, const void* from, bool valid) {
  if (reinterpret_cast<uintptr_t>(to) % 16 || reinterpret_cast<uintptr_t>(from) % 16)
    throw std::logic_error("an asynchronous copy between addresses that are no multiples of 16");
  if (!block->copied_to.insert(to).second)
    throw std::logic_error("a copy to where another one is under way");
  block->running->copies.push_back({to, from, valid, block->running->committed});
}

void commit_copies() { ++block->running->committed; }

void finish_copies(int left) {
  Thread& self = *block->running;
  const int64_t before = self.committed - left;
  std::erase_if(self.copies, [&](const Copy& copy) {
    if (copy.group >= before) return false;
    if (copy.valid)
      std::memcpy(copy.to, copy.from, 16);
    else
      std::memset(copy.to, 0, 16);
    block->copied_to.erase(copy.to);
    self.unseen.push_back(line_of(copy.to));
    return true;
  });
}

}  // namespace tessera::emulation
