// Changes files of model folders, and weight files beside them, in hostile ways and uses them
// through the public interface: with any content, each use ends soon, successfully or with an Error
// of a single line.
//
// tessera_mutation [--seconds N] [--seed S] [--case N]
//
// --case repeats a single case. The work runs in a child process, so a crash or hang is reported
// with its case.
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>

#include "mutation/attacks.h"
#include "mutation/weight_files.h"
#include "tessera/engine.h"
#include "test_paths.h"

namespace tessera::mutation {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr auto kLongest = std::chrono::seconds(60);  // limit of a case, on any machine
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

/// Memory shared by parent and child.
struct Shared {
  std::atomic<int64_t> cases{0}, refused{0}, stopped{0};
  char doing[512] = "starting";
};

/// A folder with its cheapest request.
struct Subject {
  fs::path folder;
  std::vector<std::string> files;
  bool language = false, generates = false;
  int64_t hidden = 0;  // hidden size of a moe_layer
  GenerateRequest generate{};
  CompleteRequest complete{};
  std::string weights{};  // a file in place of the folder's weights; "": none
};

RunOptions options() {
  RunOptions o;
  o.threads = 2;
  o.memory_budget = int64_t{1} << 28;
  return o;
}

std::vector<fs::path> folders() {
  std::vector<fs::path> found;
  for (const fs::path& root : {fs::path(TESSERA_MODELS_DIR), fs::path(TESSERA_TEST_DATA)})
    for (const auto& item : fs::recursive_directory_iterator(root)) {
      const fs::path folder = item.path().parent_path();
      const bool whole = folder.filename() == "model" || folder.parent_path() == root;
      if (whole &&
          (item.path().filename() == "model_index.json" || item.path().filename() == "config.json"))
        found.push_back(folder);
    }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

std::vector<GenerateRequest> candidates() {
  std::vector<GenerateRequest> all;
  for (const int64_t side : {16, 32, 64, 0})
    for (const bool text : {false, true})
      for (const bool decode : {true, false}) {
        GenerateRequest q;
        q.steps = 1;
        q.width = q.height = side;
        q.decode = decode;
        (text ? q.prompts : q.classes) = {text ? "a red circle \xc3\xa9" : "1"};
        all.push_back(q);
        q.frames = 9;
        all.push_back(q);
      }
  return all;
}

// Runs the layer of a moe_layer folder, in both forms of its experts.
void forward_layer(const Model& model, int64_t hidden, const std::stop_token& stop) {
  const std::vector<float> values(static_cast<size_t>(3 * hidden), 0.5f);
  RunControl control;
  control.stop = stop;
  for (const char* form : {"gate=skew,top_k=2,experts=swiglu,renormalise=1",
                           "gate=uniform,top_k=1,experts=gelu,capacity=1"}) {
    ForwardRequest request;
    request.component = ModelPart::moe_layer;
    request.moe = parse_moe_layer(form);
    request.tensors["x"] = {ElementType::f32, {3, hidden}, values.data()};
    model.forward(request, control);
  }
}

// Finds a request that an unchanged folder supports.
Subject subject_of(const fs::path& folder, const std::string& weights = "") {
  Subject subject{folder, files_of(folder)};
  subject.weights = weights;
  Model model = Model::open(model_in(folder, weights), options(), {}, files_in(folder, weights));
  CompleteRequest q;
  q.max_tokens = 4;
  q.block = 4;
  q.steps = 2;
  for (const bool text : {true, false}) {
    if (text)
      q.prompts = {"shift 3 hello= aaaaaaaaaaaaaaaaaaaaaaaaaaab"};
    else
      q.prompts.clear(), q.prompt_ids = {{1, 2, 3}};
    try {
      model.complete(q);
      subject.language = true;
      subject.complete = q;
      return subject;
    } catch (const Error&) {
    }
  }
  for (const GenerateRequest& request : candidates()) try {
      model.generate(request);
      subject.generates = true;
      subject.generate = request;
      return subject;
    } catch (const Error&) {
    }
  for (const int64_t hidden : {16, 24}) try {
      forward_layer(model, hidden, {});
      subject.hidden = hidden;
    } catch (const Error&) {
    }
  return subject;
}

void use(const Subject& subject, const fs::path& folder, const std::stop_token& stop) {
  Model model = Model::open(model_in(folder, subject.weights), options(), stop,
                            files_in(folder, subject.weights));
  model.inspect();
  if (subject.language) {
    CompleteControl control;
    control.stop = stop;
    model.complete(subject.complete, control);
    CompleteRequest chat = subject.complete;
    chat.prompts.clear();
    chat.prompt_ids.clear();
    chat.chat = R"([{"role": "user", "content": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab"}])";
    model.complete(chat, control);
  } else if (subject.generates) {
    RunControl control;
    control.stop = stop;
    model.generate(subject.generate, control);
  } else if (subject.hidden > 0) {
    forward_layer(model, subject.hidden, stop);
  }
}

// Every error has a single line, even with many tensors, and a known kind.
void judge(const Error& e) {
  const std::string message = e.what();
  const int code = static_cast<int>(e.code());
  if (message.empty() || message.size() > 100000 || message.find('\n') != std::string::npos) {
    std::fprintf(stderr, "an error that is no line: %s\n", message.c_str());
    std::abort();
  }
  if (code != 2 && code != 3 && code != 4 && code != 6 && code != 130) std::abort();
}

void run_case(const std::vector<Subject>& subjects, uint64_t seed, int64_t number,
              const fs::path& scratch, Shared& shared) {
  Random random(seed * 1000003 + static_cast<uint64_t>(number));
  const Subject& subject = subjects[static_cast<size_t>(number) % subjects.size()];
  const fs::path folder = scratch / "folder";
  fs::remove_all(folder);
  for (const std::string& file : subject.files) {
    fs::create_directories((folder / file).parent_path());
    fs::create_symlink(subject.folder / file, folder / file);
  }
  const bool at_file = !subject.weights.empty() && random() % 4 != 0;
  const std::vector<std::string> weights = {subject.weights};
  std::string what = attack(folder, at_file ? weights : subject.files, random);
  for (char& c : what)
    if (static_cast<unsigned char>(c) < 32) c = '?';
  std::snprintf(shared.doing, sizeof shared.doing, "case %lld of seed %llu: %s: %s",
                static_cast<long long>(number), static_cast<unsigned long long>(seed),
                subject.folder.c_str(), what.c_str());
  std::stop_source stop;
  std::jthread later;
  if (random() % 8 == 0)
    later = std::jthread([&, after = random() % 50] {
      std::this_thread::sleep_for(std::chrono::milliseconds(after));
      stop.request_stop();
    });
  try {
    use(subject, folder, stop.get_token());
  } catch (const Error& e) {
    judge(e);
    ++(e.code() == ErrorCode::cancelled ? shared.stopped : shared.refused);
  } catch (const std::bad_alloc&) {  // a folder that needs more memory than available
    ++shared.refused;
  }
  ++shared.cases;
}

[[noreturn]] void work(uint64_t seed, int64_t only, int64_t seconds, const fs::path& scratch,
                       Shared& shared) {
  if (!kSanitized) {  // sanitizers' shadow memory exceeds any limit
    const struct rlimit memory { rlim_t{6} << 30, rlim_t{6} << 30 };
    setrlimit(RLIMIT_AS, &memory);
  }
  std::vector<Subject> subjects;
  int answering = 0;
  for (const fs::path& folder : folders()) {
    std::snprintf(shared.doing, sizeof shared.doing, "the unchanged %s", folder.c_str());
    subjects.push_back(subject_of(folder));
    const Subject& one = subjects.back();
    if (one.language || one.generates || one.hidden > 0) ++answering;
    ++shared.cases;
  }
  for (const FolderWithFile& one : folders_with_files(scratch)) {
    std::snprintf(shared.doing, sizeof shared.doing, "the unchanged %s", one.folder.c_str());
    subjects.push_back(subject_of(one.folder, one.file));
    if (!subjects.back().language && !subjects.back().generates) std::_Exit(1);
    ++shared.cases;
  }
  // The others hold only parts, which are opened and inspected.
  std::printf("%d of %zu folders answer a request\n", answering, subjects.size());
  std::fflush(stdout);
  if (subjects.size() < 19 || answering < 10) std::_Exit(1);
  const auto end = Clock::now() + std::chrono::seconds(seconds);
  for (int64_t i = only >= 0 ? only : 0; Clock::now() < end; ++i) {
    run_case(subjects, seed, i, scratch, shared);
    if (only >= 0) break;
  }
  std::_Exit(0);
}

// Waits for the child; true if the child ended normally.
bool watch(pid_t child, const Shared& shared) {
  int64_t seen = -1;
  auto since = Clock::now();
  for (int status = 0;;) {
    if (waitpid(child, &status, WNOHANG) == child) {
      if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
      std::fprintf(stderr, "ended by %s %d in %s\n", WIFSIGNALED(status) ? "signal" : "status",
                   WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status), shared.doing);
      return false;
    }
    if (shared.cases != seen) since = Clock::now();
    seen = shared.cases;
    if (Clock::now() - since > kLongest) {
      std::fprintf(stderr, "no end of %s\n", shared.doing);
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

int run(int argc, char** argv) {
  int64_t seconds = 60, only = -1;
  uint64_t seed = 1;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const int64_t value = std::atoll(argv[i + 1]);
    if (name == "--seconds") seconds = value;
    if (name == "--seed") seed = static_cast<uint64_t>(value);
    if (name == "--case") only = value;
  }
  std::string scratch = (fs::temp_directory_path() / "tessera-mutation-XXXXXX").string();
  if (mkdtemp(scratch.data()) == nullptr) return 1;
  void* const memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 1;
  Shared& shared = *new (memory) Shared;
  const pid_t child = fork();
  if (child < 0) return 1;
  if (child == 0) work(seed, only, seconds, scratch, shared);
  const bool well = watch(child, shared);
  fs::remove_all(scratch);
  std::printf("%lld uses, %lld refused, %lld stopped\n", static_cast<long long>(shared.cases),
              static_cast<long long>(shared.refused), static_cast<long long>(shared.stopped));
  if (well && only < 0 && shared.refused == 0) {
    std::fprintf(stderr, "nothing was refused: the attacks do not reach the readers\n");
    return 1;
  }
  return well ? 0 : 1;
}

}  // namespace
}  // namespace tessera::mutation

int main(int argc, char** argv) { return tessera::mutation::run(argc, argv); }
