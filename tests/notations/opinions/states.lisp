; Look at a change from two sides, then ask a person.
(workflow opinions
  (roles
    (reader :agent-kind "reader")
    (guard :agent-kind "guard")
    (stylist :agent-kind "stylist")
    (merger :agent-kind "merger"))

  (state read
    (send-prompt :agent reader :template "~a" :args ((input)))
    (await (transcript-response :request-id read)))

  (state look
    (send-prompt :agent guard :template "Holes in ~a?" :args ((artifact reader)) :tag holes)
    (send-prompt :agent stylist :template "Style of ~a?" :args ((artifact reader)) :tag style)
    (await (transcript-response :request-id holes))
    (await (transcript-response :request-id style)))

  (state sure
    (gate "Merge it?" :choices (approve reject) :reject (reject)))

  (state merge
    (send-prompt :agent merger :template "~a" :args ((input)))
    (terminal)))
