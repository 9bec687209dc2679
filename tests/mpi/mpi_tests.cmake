# Programs that run under mpirun; ranks may be more than cores.
set(mpirun ${MPIEXEC_EXECUTABLE} --oversubscribe --allow-run-as-root --bind-to none)

add_executable(tessera_mpi_conformance mpi/conformance_main.cpp comm/conformance.cpp
               comm/shuffled_transport.cpp)
target_include_directories(tessera_mpi_conformance PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(tessera_mpi_conformance PRIVATE tessera_comm tessera_options MPI::MPI_CXX)
foreach(ranks 1 2 3 4 8)
  add_test(NAME mpi.Conformance.On${ranks}
           COMMAND ${mpirun} -np ${ranks} $<TARGET_FILE:tessera_mpi_conformance>)
  set_tests_properties(mpi.Conformance.On${ranks} PROPERTIES
    TIMEOUT 300 PASS_REGULAR_EXPRESSION "cases hold on ${ranks} ranks")
endforeach()

# Many patches and a slow stage: on threads, over shared memory and over TCP.
add_executable(tessera_mpi_stages mpi/stages_main.cpp)
target_include_directories(tessera_mpi_stages PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(tessera_mpi_stages PRIVATE tessera_pipeline tessera_parallel tessera_models tessera_load
                      tessera_options GTest::gtest)
function(tessera_stages_test name label task runs ranks)
  set(program $<TARGET_FILE:tessera_mpi_stages> ${task} ${runs})
  add_test(NAME mpi.${name}.Threads COMMAND ${program} ${ranks})
  add_test(NAME mpi.${name}.SharedMemory COMMAND ${mpirun} -np ${ranks} ${program})
  add_test(NAME mpi.${name}.Tcp COMMAND ${mpirun} --mca btl self,tcp -np ${ranks} ${program})
  set_tests_properties(mpi.${name}.Threads mpi.${name}.SharedMemory mpi.${name}.Tcp PROPERTIES
    TIMEOUT 1800 LABELS "${label}" PASS_REGULAR_EXPRESSION "${runs} runs on ${ranks} ranks are well")
endfunction()
tessera_stages_test(SlowStage "" small 4 8)
tessera_stages_test(SlowStageOften long small 100 8)
tessera_stages_test(BigMessages long big 1 4)

add_executable(tessera_mpi_heaps mpi/heaps_main.cpp)
target_include_directories(tessera_mpi_heaps PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(tessera_mpi_heaps PRIVATE tessera_parallel tessera_fused tessera_comm tessera_nn
                      tessera_kernels tessera_options)
foreach(ranks 1 2 3 4)
  add_test(NAME mpi.Heaps.On${ranks} COMMAND ${mpirun} -np ${ranks} $<TARGET_FILE:tessera_mpi_heaps>)
  set_tests_properties(mpi.Heaps.On${ranks} PROPERTIES
    TIMEOUT 300 PASS_REGULAR_EXPRESSION "cases and 20 layers hold on ${ranks} ranks")
endforeach()
# As between hosts: by messages, over shared memory and over TCP.
add_test(NAME mpi.Heaps.Messages COMMAND ${mpirun} -np 3 $<TARGET_FILE:tessera_mpi_heaps>)
add_test(NAME mpi.Heaps.MessagesTcp
         COMMAND ${mpirun} --mca btl self,tcp -np 3 $<TARGET_FILE:tessera_mpi_heaps>)
set_tests_properties(mpi.Heaps.Messages mpi.Heaps.MessagesTcp PROPERTIES
  TIMEOUT 300 ENVIRONMENT "TESSERA_HEAP=messages"
  PASS_REGULAR_EXPRESSION "cases and 20 layers hold on 3 ranks by messages")

add_executable(tessera_mpi_victim mpi/victim_main.cpp)
target_include_directories(tessera_mpi_victim PRIVATE ${CMAKE_CURRENT_SOURCE_DIR} ${generated})
target_link_libraries(tessera_mpi_victim PRIVATE tessera_pipeline tessera_parallel tessera_models tessera_load
                      tessera_options GTest::gtest)
list(JOIN mpirun " " mpirun_line)
set(victim_environment "TESSERA_MPIRUN=${mpirun_line}" "TESSERA_VICTIM=$<TARGET_FILE:tessera_mpi_victim>")
add_test(NAME mpi.LostRank COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/lost_rank_test.py)
set_tests_properties(mpi.LostRank PROPERTIES TIMEOUT 300 ENVIRONMENT "${victim_environment}")
add_test(NAME mpi.LostFusedRank COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/heaps_test.py)
set_tests_properties(mpi.LostFusedRank PROPERTIES TIMEOUT 300 ENVIRONMENT
  "TESSERA_MPIRUN=${mpirun_line};TESSERA_HEAPS=$<TARGET_FILE:tessera_mpi_heaps>")
add_test(NAME mpi.LostRankOften COMMAND ${Python3_EXECUTABLE}
         ${CMAKE_CURRENT_LIST_DIR}/lost_rank_test.py LostRankTest.test_killed_at_random_points)
set_tests_properties(mpi.LostRankOften PROPERTIES TIMEOUT 900 LABELS long ENVIRONMENT
                     "${victim_environment};TESSERA_KILLS=50")

add_test(NAME mpi.Generate COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/generate_test.py)
set_tests_properties(mpi.Generate PROPERTIES TIMEOUT 900 ENVIRONMENT
  "TESSERA_MPIRUN=${mpirun_line};TESSERA_PROGRAM=${CMAKE_BINARY_DIR}/tessera;TESSERA_SOURCE=${CMAKE_SOURCE_DIR}")
add_test(NAME mpi.Complete COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/complete_test.py)
set_tests_properties(mpi.Complete PROPERTIES TIMEOUT 300 ENVIRONMENT
  "TESSERA_MPIRUN=${mpirun_line};TESSERA_PROGRAM=${CMAKE_BINARY_DIR}/tessera;TESSERA_SOURCE=${CMAKE_SOURCE_DIR}")
add_test(NAME mpi.Agree COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/agree_test.py)
set_tests_properties(mpi.Agree PROPERTIES TIMEOUT 300 ENVIRONMENT
  "TESSERA_MPIRUN=${mpirun_line};TESSERA_PROGRAM=${CMAKE_BINARY_DIR}/tessera;TESSERA_SOURCE=${CMAKE_SOURCE_DIR}")

# A rank that looks for one of a job that was killed may find its port in the hands of another job, which
# says so on its standard error. Those that test TCP name it on their command line, which goes before this.
get_property(all DIRECTORY PROPERTY TESTS)
list(FILTER all INCLUDE REGEX "^(mpi\\.|server\\.processes|cli\\.docs)")
set_property(TEST ${all} APPEND PROPERTY ENVIRONMENT "OMPI_MCA_btl=^tcp")
