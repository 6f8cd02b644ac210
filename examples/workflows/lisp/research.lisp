; A lead asks, two researchers search side by side, a sceptic doubts, until nothing is open
; or a program asserts (signal research/enough :key RUN).

(defn settled (doubts)
  (= (upper (trim doubts)) "NONE"))

(workflow research
  (metadata
    (label "Research with a sceptic"))

  (limits :wall-time 14400)

  (roles
    (lead :agent-kind "claude-code")
    (reader :agent-kind "claude-code" :permissions {:mode "read"})
    (tester :agent-kind "claude-code")
    (sceptic :agent-kind "claude-code" :handle-ref "fresh"))

  (state question
    (send-prompt
      :agent lead
      :tag outline
      :template "Break this question down into what must be found out:\n\n~a"
      :args ((input)))
    (await (transcript-response :request-id outline)))

  (state search
    (loop :max 4
      (let ((wanted (artifact lead)))
        (send-prompt :agent reader :tag sources :template "Find sources for:\n\n~a" :args (wanted))
        (send-prompt :agent tester :tag trials :template "Try out what can be tried:\n\n~a" :args (wanted)))
      (with-timeout 3600
        (await (transcript-response :request-id sources))
        (await (transcript-response :request-id trials)))

      (send-prompt
        :agent lead
        :tag report
        :template "Write the report.\n\nSources:\n~a\n\nTrials:\n~a"
        :args ((artifact reader) (artifact tester)))
      (let ((report (transcript-response :request-id report)))
        (send-prompt
          :agent sceptic
          :tag doubts
          :template "What is open or not proven in this report? Answer NONE if nothing is.\n\n~a"
          :args (report))
        (await (transcript-response :request-id doubts))
        (branch
          (on (or (settled (feedback sceptic)) (signal research/enough :key @workflow-id))
              (assert (report :run @workflow-id :text report))
              (goto done))
          (otherwise
            (send-prompt
              :agent lead
              :tag outline
              :template "Say what must be found out to settle this:\n\n~a"
              :args ((feedback sceptic)))
            (await (transcript-response :request-id outline)))))))

  (state done
    (let ((found (fact (report :run @workflow-id :text ?text))))
      (result (get found "text")))
    (terminal)))
