; Two sides argue at the same time, answer each other, and a judge decides.

(workflow debate
  (metadata
    (label "Debate with a judge"))

  (inputs
    (rounds :type integer :default 2 :description "How often each side answers the other"))

  (roles
    (advocate :agent-kind "claude-code" :permissions {:mode "read"})
    (opponent :agent-kind "claude-code" :permissions {:mode "read"})
    (judge :agent-kind "claude-code"))

  (state opening
    (send-prompt :agent advocate :tag for :template "Argue for this claim: ~a" :args ((input)))
    (send-prompt :agent opponent :tag against :template "Argue against this claim: ~a" :args ((input)))
    (await (transcript-response :request-id for))
    (await (transcript-response :request-id against)))

  (state rebuttal
    (loop :times (inputs rounds)
      ; Both answer what the other said before this round.
      (let ((pro (artifact advocate))
            (con (artifact opponent)))
        (send-prompt :agent advocate :tag reply-for :template "Answer your opponent:\n\n~a" :args (con))
        (send-prompt :agent opponent :tag reply-against :template "Answer your opponent:\n\n~a" :args (pro)))
      (await (transcript-response :request-id reply-for))
      (await (transcript-response :request-id reply-against))))

  (state verdict
    (send-prompt
      :agent judge
      :tag verdict
      :template "The claim: ~a\n\nIts advocate:\n~a\n\nIts opponent:\n~a\n\nWho is right, and why?"
      :args ((input) (artifact advocate) (artifact opponent)))
    (await (transcript-response :request-id verdict))
    (assert (verdict :on (input) :text (artifact judge)))
    (result (artifact judge))
    (terminal)))
