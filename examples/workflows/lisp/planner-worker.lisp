; A planner thinks, a worker does, the planner looks at what was done.
; Start it with the task: nerve run planner-worker.lisp "Add a login page"

(defn accepted (answer)
  (= (upper (trim answer)) "ACCEPTED"))

(workflow planner-worker
  (metadata
    (label "Planner and worker")
    (description "A planner plans, a worker works, until the planner accepts the work."))

  (roles
    (planner :agent-kind "claude-code")
    (worker :agent-kind "claude-code"))

  (state plan
    (send-prompt
      :agent planner
      :tag plan
      :template "Write a short plan, in numbered steps, for this task:\n\n~a"
      :args ((input)))
    (await (transcript-response :request-id plan)))

  (state work
    (send-prompt
      :agent worker
      :tag work
      :template "Carry out this plan and report what you did:\n\n~a"
      :args ((artifact planner)))
    (await (transcript-response :request-id work)))

  (state acceptance
    (loop :max 5
      (send-prompt
        :agent planner
        :tag verdict
        :template "Compare this report with your plan. Answer ACCEPTED and nothing else if all is done; otherwise say what is missing.\n\n~a"
        :args ((artifact worker)))
      (await (transcript-response :request-id verdict))
      (branch
        (on (accepted (feedback planner))
            (goto done)))
      (send-prompt
        :agent worker
        :tag rework
        :template "This is still missing:\n\n~a"
        :args ((feedback planner)))
      (await (transcript-response :request-id rework))))

  (state done
    (result (artifact worker))
    (terminal)))
