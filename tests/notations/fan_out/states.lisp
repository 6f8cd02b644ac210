; Split a subject, look into every part, let two judge the whole, and write.
(workflow fan_out
  (state research
    (call splitter :input (input))
    (let ((found (node {:kind "map" :body {:kind "call" :target "researcher"}})))
      (result (join found " + "))))

  (state judge
    (node {:kind "parallel"
           :branches [{:kind "call" :id "critic" :target "critic"}
                      {:kind "call" :id "friend" :target "friend"}]}))

  (state write
    (call writer)
    (terminal)))
