# What `cmake --install` copies, and the Debian packages that `cpack` makes of it.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# All layers in one shared library: who links it needs the public headers and nothing else.
get_property(layers GLOBAL PROPERTY TESSERA_LAYERS)
add_library(tessera_shared SHARED)
foreach(layer ${layers})
  target_sources(tessera_shared PRIVATE $<TARGET_OBJECTS:${layer}>)
endforeach()
target_link_libraries(tessera_shared PRIVATE ${layers}) # for what they link
set_target_properties(tessera_shared PROPERTIES LINKER_LANGUAGE CXX)
target_include_directories(tessera_shared PUBLIC $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include>
                                                 $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_compile_features(tessera_shared PUBLIC cxx_std_20)
set_target_properties(tessera_shared PROPERTIES OUTPUT_NAME tessera EXPORT_NAME tessera VERSION ${PROJECT_VERSION}
                      SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})

# Manual pages and completions say what --help says.
set(manual ${CMAKE_BINARY_DIR}/manual)
find_package(Python3 COMPONENTS Interpreter QUIET)
if(Python3_FOUND)
  add_custom_command(OUTPUT ${manual}/stamp
                     COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/make_manual.py $<TARGET_FILE:tessera> ${manual}
                     COMMAND ${CMAKE_COMMAND} -E touch ${manual}/stamp
                     DEPENDS tessera ${CMAKE_SOURCE_DIR}/tools/make_manual.py)
  add_custom_target(tessera_manual ALL DEPENDS ${manual}/stamp)
endif()

install(TARGETS tessera RUNTIME COMPONENT program)
install(DIRECTORY models/ DESTINATION ${CMAKE_INSTALL_DATADIR}/tessera/models COMPONENT program)
if(Python3_FOUND)
  install(DIRECTORY ${manual}/man1 DESTINATION ${CMAKE_INSTALL_MANDIR} COMPONENT program)
  install(FILES ${manual}/tessera.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions
          RENAME tessera COMPONENT program)
  install(FILES ${manual}/_tessera DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions COMPONENT program)
  install(FILES ${manual}/tessera.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d COMPONENT program)
endif()
install(FILES LICENSE README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT program)

install(TARGETS tessera_shared EXPORT TesseraTargets LIBRARY COMPONENT library NAMELINK_COMPONENT development)
install(DIRECTORY include/tessera DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)
set(config ${CMAKE_INSTALL_LIBDIR}/cmake/Tessera)
install(EXPORT TesseraTargets NAMESPACE Tessera:: FILE TesseraConfig.cmake DESTINATION ${config}
        COMPONENT development)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/TesseraConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/TesseraConfigVersion.cmake DESTINATION ${config} COMPONENT development)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME tessera)
set(CPACK_PACKAGE_CONTACT "The Tessera authors")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Images, videos and texts from diffusion transformers, on the machine you have")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_ALL program library development)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME tessera)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME libtessera${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_LIBRARY_DESCRIPTION "Images, videos and texts from diffusion transformers: the library")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libtessera-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_DESCRIPTION "Images, videos and texts from diffusion transformers: headers")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS
    "${CPACK_DEBIAN_LIBRARY_PACKAGE_NAME} (= ${PROJECT_VERSION})")
# What runs processes beside one another, and what is loaded when a video is written.
set(recommended openmpi-bin)
foreach(part avformat avcodec swscale avutil)
  file(REAL_PATH ${MEDIA_LIBRARY_${part}} library)
  if(library MATCHES "\\.so\\.([0-9]+)")
    list(APPEND recommended lib${part}${CMAKE_MATCH_1})
  endif()
endforeach()
list(JOIN recommended ", " CPACK_DEBIAN_PROGRAM_PACKAGE_RECOMMENDS)
include(CPack)
