# Everything is compiled with the same sanitizers; an error ends the program, so that a test fails.
if(ANNULUS_SANITIZE)
  add_compile_options(-fsanitize=${ANNULUS_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${ANNULUS_SANITIZE})
endif()
if(ANNULUS_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
