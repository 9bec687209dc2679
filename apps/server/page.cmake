# tessera_page: the files of page/, embedded in the program for page.h.
set(page_source ${CMAKE_CURRENT_BINARY_DIR}/page_files.cpp)
file(GLOB page_files CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/page/*)
add_custom_command(
  OUTPUT ${page_source}
  COMMAND ${CMAKE_COMMAND} -DFOLDER=${CMAKE_CURRENT_LIST_DIR}/page -DOUTPUT=${page_source}
          -P ${CMAKE_CURRENT_LIST_DIR}/embed_page.cmake
  DEPENDS ${page_files} ${CMAKE_CURRENT_LIST_DIR}/embed_page.cmake
  COMMENT "Embedding the web page" VERBATIM)
add_library(tessera_page STATIC ${CMAKE_CURRENT_LIST_DIR}/page.cpp ${page_source})
target_include_directories(tessera_page PUBLIC ${CMAKE_CURRENT_LIST_DIR} ${CMAKE_CURRENT_LIST_DIR}/..)
target_link_libraries(tessera_page PRIVATE tessera_options)
