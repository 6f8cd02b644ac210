; One step is tried again, one has another instead, one is skipped, and one is not wanted.
(workflow failures
  (state all
    (let ((fetched (node {:kind "call" :target "fetcher" :retry {:attempts 3 :delay 0}
                          :input {:input "{{ input }}" :context {}}})))
      (node {:kind "call" :target "painter" :input {:input "{{ input }}" :context {}}
             :on_error {:kind "call" :target "sketcher" :input {:input "{{ input }}" :context {}}}})
      (node {:kind "call" :target "counter" :on_error "skip" :input {:input "{{ input }}" :context {}}})
      (branch
        (on (> (get fetched :pages) 10)
          (call archivist :input {:input (input) :context {}})))
      (call printer :input {:input (input) :context {:fetch fetched} :fetch fetched}))
    (terminal)))
