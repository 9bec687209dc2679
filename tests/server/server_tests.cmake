# The server as a process; where the build has none, one test says so.
if(NOT TARGET tessera_server)
  add_test(NAME server.process COMMAND ${CMAKE_COMMAND} -E echo
           "server.process: Skipped\nthe build has no server; run ./scripts/install\n\n[  SKIPPED ] server.process")
  set_tests_properties(server.process PROPERTIES SKIP_REGULAR_EXPRESSION "\\[  SKIPPED \\]")
  return()
endif()
file(GLOB scripts CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*_test.py)
# OpenAI's client has an environment of its own.
set(client_python ${CMAKE_SOURCE_DIR}/build/server/bin/python)
foreach(script ${scripts})
  get_filename_component(name ${script} NAME_WE)
  set(python ${Python3_EXECUTABLE})
  if(name MATCHES "^openai_")
    set(python ${client_python})
    if(NOT EXISTS ${client_python})
      add_test(NAME server.${name} COMMAND ${CMAKE_COMMAND} -E echo
               "server.${name}: Skipped\nthere is no ${client_python}; run ./scripts/install server\n\n[  SKIPPED ] server.${name}")
      set_tests_properties(server.${name} PROPERTIES SKIP_REGULAR_EXPRESSION "\\[  SKIPPED \\]")
      continue()
    endif()
  endif()
  add_test(NAME server.${name} COMMAND ${python} ${script})
  set_tests_properties(server.${name} PROPERTIES TIMEOUT 300 ENVIRONMENT
    "TESSERA_PROGRAM=${CMAKE_BINARY_DIR}/tessera;TESSERA_SOURCE=${CMAKE_SOURCE_DIR};PYTHONDONTWRITEBYTECODE=1")
endforeach()
