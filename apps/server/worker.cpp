#include "server/worker.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <utility>

#include "server/batch.h"
#include "server/field_names.h"
#include "tessera/encodings.h"
#include "tessera/save.h"
#include "tessera/words.h"

namespace tessera::server {
namespace {

// Distributes images or frames to their jobs; videos are numbered over all jobs.
class Shares {
 public:
  explicit Shares(const std::vector<JobPtr>& jobs) {
    for (const JobPtr& job : jobs) add(*job);
  }
  void add(const Job& job) {
    ends_.push_back((ends_.empty() ? 0 : ends_.back()) + samples_of(job.ask));
  }
  size_t owner(int sample) const {
    return size_t(std::upper_bound(ends_.begin(), ends_.end(), sample) - ends_.begin());
  }
  int first(size_t job) const { return job == 0 ? 0 : ends_[job - 1]; }
  int count(size_t job) const { return ends_[job] - first(job); }

 private:
  std::vector<int> ends_;
};

Json ages_of(const RankProgress& rank) {
  Json ages = Json::object();
  if (!rank.expert_ages.empty()) ages["experts"] = rank.expert_ages;
  if (!rank.kv_ages.empty()) ages["kv"] = rank.kv_ages;
  return ages;
}

// Publishes statistics of ranks, for plans with several: compute, waits, traffic and the age of the
// data read.
void tell_ranks(const std::vector<JobPtr>& jobs, const Progress& p) {
  if (p.ranks.size() < 2) return;
  Json ranks = Json::array();
  for (const RankProgress& rank : p.ranks)
    ranks.push_back({{"rank", rank.rank},
                     {"compute_seconds", rank.compute_seconds},
                     {"wait_seconds", rank.wait_seconds},
                     {"sent_bytes", rank.sent_bytes},
                     {"ages", ages_of(rank)}});
  const std::string event = text_of({{"step", p.step}, {"ranks", ranks}});
  for (const JobPtr& job : jobs) job->events.add("ranks", event);
}

// A failed preview is skipped; the run continues.
void show_preview(const std::vector<JobPtr>& jobs, const Shares& shares, const Progress& p,
                  const std::stop_token& stop) {
  const int every = jobs[0]->record.previews;
  if (every == 0 || !p.preview || p.step == 0 || p.step == p.steps || p.step % every != 0) return;
  try {
    const std::vector<Image> images = p.preview();
    const std::vector<Sample> samples = tessera::samples_of(images);
    for (size_t i = 0; i < jobs.size(); ++i) {
      const Image& image = samples.at(size_t(shares.first(i))).frames.front();
      const std::string url = "data:image/png;base64," + to_base64(encode_png(image, stop));
      jobs[i]->events.add("preview", text_of({{"step", p.step}, {"image", url}}));
    }
  } catch (const Error& e) {
    if (e.code() == ErrorCode::cancelled) throw;
  }
}

// A failed write is not the fault of the request.
template <class Write>
void stored(const Write& write) {
  try {
    write();
  } catch (const Error& e) {
    if (e.code() != ErrorCode::usage) throw;
    throw Refusal(507, "storage", in_fields(e.what(), {}, true));
  }
}

Outcome outcome_of(const Job& job, const Store& store, const GenerateResult& result,
                   std::span<const Sample> samples, const std::stop_token& stop) {
  Outcome outcome;
  std::string folder;
  stored([&] { folder = store.folder_of(job.record.id); });
  for (size_t i = 0; i < samples.size(); ++i) {
    const Sample& sample = samples[i];
    const std::string name = std::to_string(i) + (sample.is_video() ? ".mp4" : ".png");
    const std::string path = std::filesystem::path(folder) / name;
    std::error_code none;
    stored([&] { save_sample(sample, path, {}, stop); });
    outcome.results.push_back({{"file", name},
                               {"type", sample.is_video() ? "video/mp4" : "image/png"},
                               {"width", sample.frames.front().width},
                               {"height", sample.frames.front().height},
                               {"seed", sample.seed},
                               {"bytes", std::filesystem::file_size(path, none)}});
  }
  outcome.report = Json::parse(to_json(result.report));
  outcome.steps = double(result.steps) * double(samples.size());
  return outcome;
}

// A stop that all rank processes see at the same step: requested only at the point where all agree
// to continue.
class StepStop {
 public:
  StepStop(const std::stop_token& stop, bool together) : stop_token_(stop), together_(together) {}
  std::stop_token token() const { return together_ ? agreed_.get_token() : stop_token_; }
  void between_steps() {
    if (together_ && stop_token_.stop_requested()) agreed_.request_stop();
  }

 private:
  std::stop_token stop_token_;
  std::stop_source agreed_;
  bool together_;
};

std::vector<Outcome> run_images(const std::vector<JobPtr>& jobs, const Store& store,
                                const RunCallbacks& callbacks, StepStop step_stop) {
  const Shares shares(jobs);
  const std::stop_token stop = step_stop.token();
  RunControl control{stop, {}, {}};
  control.on_progress = [&](const Progress& p) {
    callbacks.admitted();
    if (p.phase != Phase::denoise) return;
    for (const JobPtr& job : jobs) callbacks.step(*job, p.step, p.steps, p.seconds);
    if (p.step > 0) tell_ranks(jobs, p);
    show_preview(jobs, shares, p, stop);
    if (p.step < p.steps) step_stop.between_steps();
  };
  const GenerateRequest request = merged_images(jobs);
  const GenerateResult result = jobs[0]->served->model.generate(request, control);
  const auto samples = tessera::samples_of(result, request, jobs[0]->record.model);
  std::vector<Outcome> outcomes;
  callbacks.after([&] {
    for (size_t i = 0; i < jobs.size(); ++i) {
      const auto own = std::span(samples).subspan(size_t(shares.first(i)), size_t(shares.count(i)));
      outcomes.push_back(outcome_of(*jobs[i], store, result, own, stop));
    }
  });
  return outcomes;
}

void tell_block(Job& job, int sequence, const CompleteProgress& p) {
  if (!p.text.empty()) job.events.add("text", text_of({{"sequence", sequence}, {"delta", p.text}}));
  if (p.block.empty()) return;
  Json texts = Json::array();
  for (const std::string& text : p.block) texts.push_back(text.empty() ? Json() : Json(text));
  Json block = {{"sequence", sequence}, {"begin", p.from}, {"texts", texts}};
  if (p.experts > 0) block["experts"] = p.experts;
  job.events.add("block", text_of(block));
}

Outcome answers_of(const CompleteResult& result, const Shares& shares, size_t job) {
  Outcome outcome;
  Json texts = Json::array(), finishes = Json::array();
  int64_t cached_tokens = 0;
  size_t prompt = 0, generated = 0;
  CompleteResult own = result;
  own.completions.assign(result.completions.begin() + shares.first(job),
                         result.completions.begin() + shares.first(job) + shares.count(job));
  for (const Completion& c : own.completions) {
    texts.push_back(c.text);
    finishes.push_back(word_of(c.finish));
    if (&c == own.completions.data() ||
        c.prompt != (&c - 1)->prompt) {  // answers to a prompt are adjacent
      prompt += c.prompt_ids.size();
      cached_tokens += c.reused;
    }
    generated += c.ids.size();
  }
  outcome.text = texts.size() == 1 ? texts[0] : texts;
  outcome.usage = {{"prompt_tokens", prompt},
                   {"completion_tokens", generated},
                   {"total_tokens", prompt + generated},
                   {"prompt_tokens_details", {{"cached_tokens", cached_tokens}}},
                   {"finish", finishes}};
  outcome.report = Json::parse(to_json(own));
  outcome.tokens = double(generated);
  return outcome;
}

// Jobs that join and leave a running batch of texts.
class Flow {
 public:
  Flow(std::vector<JobPtr>& jobs, Shares& shares, const RunCallbacks& callbacks,
       const std::stop_token& stop)
      : jobs_(jobs), shares_(shares), callbacks_(callbacks), stop_(stop) {
    for (const JobPtr& job : jobs_) note(*job);
  }

  std::vector<std::vector<int32_t>> join() {
    std::vector<std::vector<int32_t>> prompts;
    for (const JobPtr& job : callbacks_.join(active_)) {
      jobs_.push_back(job);
      shares_.add(*job);
      note(*job);
      for (auto& ids : prompt_ids(*job, stop_)) prompts.push_back(std::move(ids));
    }
    if (!prompts.empty() && last_) callbacks_.ended(last_->first, last_->second);
    if (!prompts.empty()) last_.reset();
    return prompts;
  }
  void answered(int answer, const CompleteResult& now) {
    const size_t owner = shares_.owner(answer);
    --active_;
    if (--left_[owner] > 0) return;
    const Outcome outcome = answers_of(now, shares_, owner);
    if (active_ > 0)
      callbacks_.ended(jobs_[owner], outcome);
    else  // otherwise the job ends with the run and gets its full report
      last_ = {jobs_[owner], outcome};
  }

 private:
  void note(const Job& job) {
    left_.push_back(samples_of(job.ask));
    active_ += left_.back();
  }

  std::vector<JobPtr>& jobs_;
  Shares& shares_;
  const RunCallbacks& callbacks_;
  const std::stop_token stop_;
  std::vector<int> left_;  // remaining answers of each job
  int active_ = 0;
  std::optional<std::pair<JobPtr, Outcome>> last_;
};

std::vector<Outcome> run_texts(std::vector<JobPtr>& jobs, const RunCallbacks& callbacks,
                               StepStop step_stop) {
  const std::stop_token stop = step_stop.token();
  Shares shares(jobs);
  std::map<const Job*, int> passes;
  const double start = now();
  CompleteControl control{stop, {}, {}};
  control.prefix = callbacks.prefix;
  control.owner = [&](int answer) { return jobs[shares.owner(answer)]->record.client; };
  Flow flow(jobs, shares, callbacks, stop);
  if (callbacks.join) {
    control.join = [&] {
      callbacks.admitted();
      return flow.join();
    };
    control.on_answer = [&](int answer, const CompleteResult& so_far) {
      flow.answered(answer, so_far);
    };
  }
  control.on_progress = [&](const CompleteProgress& p) {
    callbacks.admitted();
    const size_t owner = shares.owner(p.prompt);
    tell_block(*jobs[owner], p.prompt - shares.first(owner), p);
    callbacks.step(*jobs[owner], ++passes[jobs[owner].get()], 0, now() - start);
    step_stop.between_steps();
  };
  const CompleteResult result = jobs[0]->served->model.complete(merged_texts(jobs, stop), control);
  std::vector<Outcome> outcomes;
  for (size_t i = 0; i < jobs.size(); ++i) outcomes.push_back(answers_of(result, shares, i));
  return outcomes;
}

}  // namespace

std::vector<Outcome> run_jobs(std::vector<JobPtr>& jobs, const Store& store,
                              const RunCallbacks& callbacks, const std::stop_token& stop,
                              bool together) {
  if (jobs[0]->record.kind == Kind::text) return run_texts(jobs, callbacks, {stop, together});
  return run_images(jobs, store, callbacks, {stop, together});
}

void take(const Outcome& outcome, Job& job, Metrics& metrics) {
  job.record.results = outcome.results;
  job.record.text = outcome.text;
  job.record.usage = outcome.usage;
  job.record.report = outcome.report;
  if (outcome.steps > 0) metrics.steps(job.record.client, job.record.model, outcome.steps);
  if (outcome.tokens > 0) metrics.tokens(job.record.client, job.record.model, outcome.tokens);
}

}  // namespace tessera::server
