; Plan, then code until the tests are content, ask, publish.
(workflow review_loop
  (state planning
    (let ((plan (call planner :input {:input (input) :context {}})))
      (loop
        (let ((code (call coder :input {:input (input) :context {:plan plan} :plan plan}))
              (test (call tester :input {:input (input) :context {:code code} :code code})))
          (branch
            (on (get test :ok)
              (gate "Publish ~a?" code :choices (approve reject) :reject (reject))
              (result code)
              (goto publishing)))))))

  (state publishing
    (let ((code (node {:kind "transform" :expression "given"})))
      (call publisher :input {:input (input) :context {:code code} :code code}))
    (terminal)))
