; One agent writes, and reviews its own draft with fresh eyes: the reviewer shares the kind of agent,
; not the conversation.

(defn approved (review)
  (= (upper (trim review)) "APPROVED"))

(workflow self-review
  (metadata
    (label "Draft, review, improve"))

  (roles
    (author :agent-kind "claude-code" :handle-ref "author")
    (reviewer :agent-kind "claude-code" :handle-ref "reviewer"))

  (state draft
    (action
      (send-prompt
        :agent author
        :template "Write a first draft: ~a"
        :args ((input)))
      (await (transcript-response :request-id first-draft))))

  (state review
    (loop :max 4
      (action
        (send-prompt
          :agent reviewer
          :template "You have not seen this text before. List its faults, or answer APPROVED:\n\n~a"
          :args ((artifact author)))
        (await (transcript-response :request-id review)))
      (branch
        (when (approved (feedback reviewer))
          (goto done))
        (otherwise
          (log "Another round: ~a" (feedback reviewer))
          (action
            (send-prompt
              :agent author
              :template "Rewrite your draft so that none of this can be said of it:\n\n~a"
              :args ((feedback reviewer)))
            (await (transcript-response :request-id rewrite)))))))

  (state done
    (result (artifact author))
    (terminal)))
