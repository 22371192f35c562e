# Everything is compiled with the same sanitizers; an error ends the program, so that a test fails.
if(ANNULUS_SANITIZE)
  # -O1 takes half the time to compile of -O3 and leaves more of the source's accesses to be checked.
  add_compile_options(-fsanitize=${ANNULUS_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -g1 -O1)
  add_compile_definitions(_GLIBCXX_ASSERTIONS)  # an index beyond a vector or span that still hits memory of its own
  add_link_options(-fsanitize=${ANNULUS_SANITIZE})
endif()
