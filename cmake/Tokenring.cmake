# SPDX-License-Identifier: Apache-2.0
# How every target of the tree is built.

option(TOKENRING_ENGINE_ONLY "the engine and tools/gpu_check alone, which need no library but libc" OFF)
if(TOKENRING_ENGINE_ONLY)
  find_package(PkgConfig QUIET)
else()
  find_package(PkgConfig REQUIRED)
endif()
set(TOKENRING_SANITIZE "" CACHE STRING "sanitizers, e.g. address,undefined or thread")
set(TOKENRING_FAULTS ${BUILD_TESTING} CACHE BOOL "points at which tests kill or stop processes (base/fault.h)")
set(TOKENRING_CUDA OFF CACHE BOOL "build cuda_kernels/ for a GPU and --backend cuda (nvcc)")
set(TOKENRING_FUZZ OFF CACHE BOOL "build the libFuzzer drivers in tests/fuzz (clang)")

add_library(tr_flags INTERFACE)
target_compile_features(tr_flags INTERFACE c_std_17)
target_compile_definitions(tr_flags INTERFACE _GNU_SOURCE)
# C++ is in tests alone, where kernels for a GPU run on the CPU.
target_compile_options(tr_flags INTERFACE
  "$<$<COMPILE_LANGUAGE:C>:-std=gnu17>" "$<$<COMPILE_LANGUAGE:C,CXX>:-Wall;-Wextra>"
  "$<$<COMPILE_LANGUAGE:C>:-Wconversion;-Wshadow;-Wstrict-prototypes;-Wmissing-prototypes>"
  "$<$<COMPILE_LANGUAGE:C,CXX>:-Wformat=2;-Werror;-ffp-contract=off;-fno-strict-aliasing;-fno-omit-frame-pointer>")
if(TOKENRING_SANITIZE)
  target_compile_options(tr_flags INTERFACE -fsanitize=${TOKENRING_SANITIZE} -fno-sanitize-recover=all)
  target_link_options(tr_flags INTERFACE -fsanitize=${TOKENRING_SANITIZE})
endif()
if(TOKENRING_FAULTS)
  target_compile_definitions(tr_flags INTERFACE TR_FAULTS)
endif()
if(TOKENRING_ENGINE_ONLY)
  target_compile_definitions(tr_flags INTERFACE TR_ENGINE_ONLY)
endif()
if(TOKENRING_FUZZ)
  target_compile_options(tr_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

# tr_library(NAME SOURCES... [LINK LIBS...] [PRIVATE LIBS...])
# A folder's static library.  Headers are included as "NAME/file.h"; that path exists only for
# targets that link NAME (a symlink farm in the build tree), so an include against the direction
# of dependencies does not compile.
function(tr_library name)
  cmake_parse_arguments(A "" "" "SOURCES;LINK;PRIVATE" ${ARGN})
  set(inc ${CMAKE_BINARY_DIR}/include/${name})
  file(MAKE_DIRECTORY ${inc})
  file(CREATE_LINK ${CMAKE_CURRENT_SOURCE_DIR} ${inc}/${name} SYMBOLIC)
  if(A_SOURCES)
    add_library(${name} STATIC ${A_SOURCES})
    target_include_directories(${name} PUBLIC ${inc})
    target_link_libraries(${name} PUBLIC ${A_LINK} PRIVATE tr_flags ${A_PRIVATE})
  else()
    add_library(${name} INTERFACE)
    target_include_directories(${name} INTERFACE ${inc})
    target_link_libraries(${name} INTERFACE ${A_LINK})
  endif()
endfunction()

# tr_unit_test(FOLDER NOUN [LIBS...]): tests/unit/FOLDER/test_NOUN.c, a Criterion program.
# Not built under TSan: Criterion does not start there (its place is taken by tests/stress).
function(tr_unit_test folder noun)
  if(TOKENRING_SANITIZE MATCHES "thread")
    return()
  endif()
  set(t unit_${folder}_${noun})
  add_executable(${t} ${CMAKE_SOURCE_DIR}/tests/unit/${folder}/test_${noun}.c)
  target_link_libraries(${t} PRIVATE ${folder} testlib tr_flags ${ARGN} PkgConfig::CRITERION)
  # Criterion 2.4.1's own macros put an int into a one-bit field; a source's options come last.
  set_source_files_properties(${CMAKE_SOURCE_DIR}/tests/unit/${folder}/test_${noun}.c
    PROPERTIES COMPILE_OPTIONS -Wno-conversion)
  add_test(NAME ${t} COMMAND ${t} --timeout 120 WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(${t} PROPERTIES LABELS unit TIMEOUT 600
    ENVIRONMENT LSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/tests/lib/criterion.supp:print_suppressions=0)
endfunction()

# tr_program_test(KIND NAME SOURCE [LIBS...]): a plain-main test that prints "N passed, N failed"
# and exits non-zero on failure.  KIND is stress or golden; it becomes the CTest label.
function(tr_program_test kind name source)
  set(t ${kind}_${name})
  add_executable(${t} ${source})
  target_link_libraries(${t} PRIVATE testlib tr_flags ${ARGN})
  add_test(NAME ${t} COMMAND ${t} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(${t} PROPERTIES LABELS ${kind} TIMEOUT 900)
endfunction()

# tr_serial_test(...): a tr_program_test of one thread, in which TSan can find nothing.
function(tr_serial_test)
  if(NOT TOKENRING_SANITIZE MATCHES "thread")
    tr_program_test(${ARGN})
  endif()
endfunction()

# tr_fuzz(NAME LIBS...): tests/fuzz/NAME.c over the corpus tests/fuzz/corpus/NAME.
# With TOKENRING_FUZZ it is a libFuzzer driver; without, the same entry point replays the corpus
# (tests/lib/fuzz_replay.c), so every build but TSan's checks every committed input: readers are one thread.
function(tr_fuzz name)
  if(TOKENRING_SANITIZE MATCHES "thread")
    return()
  endif()
  set(t fuzz_${name})
  if(TOKENRING_FUZZ)
    add_executable(${t} ${CMAKE_SOURCE_DIR}/tests/fuzz/${name}.c)
    target_link_options(${t} PRIVATE -fsanitize=fuzzer)
  else()
    add_executable(${t} ${CMAKE_SOURCE_DIR}/tests/fuzz/${name}.c ${CMAKE_SOURCE_DIR}/tests/lib/fuzz_replay.c)
    add_test(NAME ${t} COMMAND ${t} ${CMAKE_SOURCE_DIR}/tests/fuzz/corpus/${name})
    set_tests_properties(${t} PROPERTIES LABELS fuzz TIMEOUT 300)
  endif()
  target_link_libraries(${t} PRIVATE tr_flags ${ARGN})
endfunction()
