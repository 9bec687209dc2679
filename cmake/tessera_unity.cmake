# Compiles several sources of a target as one. They parse their headers once, which halves the time of a build
# from nothing; a build of one changed source takes longer, so those who change the tree may leave it off.

# A source here shares a name that is local to a file with another source of its target.
set(tessera_alone
    apps/server/chat_reader.cpp
    apps/server/follow.cpp
    apps/server/keys.cpp
    apps/server/multipart.cpp
    apps/server/openai.cpp
    apps/server/run_jobs.cpp
    apps/server/serve.cpp
    apps/server/wrong_keys.cpp
    src/base/machine_memory.cpp
    src/base/step_cache.cpp
    src/base/stop.cpp
    src/cluster/share_prompts.cpp
    src/diffusion/sharded_text.cpp
    src/engine/report.cpp
    src/fused/open_heap.cpp
    src/jinja/expression.cpp
    src/jinja/lexer.cpp
    src/jinja/statement.cpp
    src/jinja/value.cpp
    src/load/gguf_header.cpp
    src/load/hub_cache.cpp
    src/load/name_map.cpp
    src/load/quantise_rules.cpp
    src/load/safetensors.cpp
    src/load/safetensors_header.cpp
    src/load/safetensors_writer.cpp
    src/load/weights_file.cpp
    src/media/read_image.cpp
    src/media/video.cpp
    src/media/webp.cpp
    src/models/dit_moe_pipeline.cpp
    src/models/hunyuan_dit.cpp
    src/models/llada2_spec.cpp
    src/models/llada_moe_spec.cpp
    src/models/pixart.cpp
    src/models/sd3.cpp
    src/models/token_config.cpp
    src/models/vae/autoencoder_kl.cpp
    src/models/vae/autoencoder_tiny.cpp
    src/models/z_image.cpp
    src/ops/norm.cpp
    src/parallel/reuse/change.cpp
    src/planner/published_case.cpp
    src/planner/timeline.cpp
    src/sample/levenshtein_rule.cpp
    src/sample/unipc.cpp
    src/study/eval_tasks.cpp
    src/tensor/scope.cpp
    src/tensor/storage.cpp
    src/tensor/work_count.cpp
    src/tokenizer/formats.cpp
    src/tokenizer/pre_tokenizers.cpp
    src/tokenizer/unigram.cpp
    tests/comm/mpi/no_mpi_test.cpp
    tests/comm/mpi/progress_test.cpp
    tests/fused/lanes_test.cpp
    tests/fused/open_heap_test.cpp
    tests/fused/operator_test.cpp
    tests/jinja/expression_test.cpp
    tests/kernels/attention_test.cpp
    tests/kernels/int8_test.cpp
    tests/kernels/matmul_test.cpp
    tests/load/broken_adapters_test.cpp
    tests/load/file_scales_test.cpp
    tests/media/read_image_test.cpp
    tests/nn/moe/capacity_policy_test.cpp
    tests/nn/moe/expert_selection_test.cpp
    tests/nn/moe/log_test.cpp
    tests/ops/matmul_test.cpp
    tests/ops/norm_test.cpp
    tests/server/field_reader_test.cpp
    tests/server/hostile_fields_test.cpp
    tests/server/image_fields_test.cpp
    tests/tensor/tensor_test.cpp
    tests/tokenizer/unigram_test.cpp
)

function(tessera_unity target)
  if(NOT TESSERA_UNITY)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
  foreach(source ${ARGN})
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} OUTPUT_VARIABLE path)
    cmake_path(RELATIVE_PATH path BASE_DIRECTORY ${CMAKE_SOURCE_DIR})
    if(path IN_LIST tessera_alone)
      set_source_files_properties(${source} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
  endforeach()
endfunction()
