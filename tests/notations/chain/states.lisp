; Plan, implement, review.
(workflow chain
  (roles
    (planner :agent-kind "planner")
    (coder :agent-kind "coder")
    (reviewer :agent-kind "reviewer"))

  (state plan
    (send-prompt :agent planner :template "Plan this: ~a" :args ((input)) :tag plan)
    (await (transcript-response :request-id plan)))

  (state implement
    (send-prompt :agent coder :template "Do ~a for ~a." :args ((artifact planner) (input)) :tag patch)
    (await (transcript-response :request-id patch)))

  (state review
    (send-prompt :agent reviewer :template "Review ~a." :args ((artifact coder)) :tag review)
    (await (transcript-response :request-id review))
    (terminal)))
