# The Python module as it stands in this build; without it one test says why there are none.
file(GLOB scripts CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*_test.py)
set(without "")
if(NOT TESSERA_HAS_PYTHON)
  set(without "${TESSERA_NO_PYTHON}")
else()
  execute_process(COMMAND ${Python_EXECUTABLE} -c "import numpy, pytest" RESULT_VARIABLE missing
                  OUTPUT_QUIET ERROR_QUIET)
  if(missing)
    set(without "${Python_EXECUTABLE} has no numpy or no pytest; run ./scripts/install python")
  endif()
endif()
if(without)
  add_test(NAME python.module COMMAND ${CMAKE_COMMAND} -E echo
           "python.module: Skipped\n${without}\n\n[  SKIPPED ] python.module")
  set_tests_properties(python.module PROPERTIES SKIP_REGULAR_EXPRESSION "\\[  SKIPPED \\]")
  return()
endif()
foreach(script ${scripts})
  get_filename_component(name ${script} NAME_WE)
  add_test(NAME python.${name} COMMAND ${Python_EXECUTABLE} -m pytest -q -p no:cacheprovider -rs ${script})
  set_tests_properties(python.${name} PROPERTIES TIMEOUT 600 ENVIRONMENT
    "TESSERA_PROGRAM=${CMAKE_BINARY_DIR}/tessera;TESSERA_SOURCE=${CMAKE_SOURCE_DIR};PYTHONPATH=${CMAKE_BINARY_DIR}/python;PYTHONDONTWRITEBYTECODE=1")
endforeach()
